"""Clients that we did not write, scripted clusters, and scenarios that both sides play."""
