"""The common sink that clients are measured against: in C, in Python, and what starts it."""
