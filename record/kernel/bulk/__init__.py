"""Rows of columns, Arrow columns among them, encoded without an object for each record.

May import: building, outcomes.
"""
