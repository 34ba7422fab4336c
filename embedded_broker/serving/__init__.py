"""The server of clients: frames in, turns of the loop, answers out. ``registry.py`` says who answers.

May import: fetching (what is parked), producing (the straight path), configs, quotas, security.
"""
