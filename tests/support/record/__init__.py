"""Batches made by hand, outcomes in each state, values for every message."""
