"""The common sink that clients are measured against, in C and in Python, and its starter."""
