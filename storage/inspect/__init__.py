"""Logs and data directories looked at from outside: nothing is changed, nothing in them is trusted.

May import: all of storage but log, manager and cleaning.
"""
