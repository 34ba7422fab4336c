"""All logs of one broker: opened, created, moved, kept in order and closed.

May import: all of storage but inspect.
"""
