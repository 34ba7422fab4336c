"""Answers of handlers and their encoding; turns of the broker's loop, and the work done beside it.

May import: nothing.
"""
