"""Encode rows of columns, also of Arrow columns, without an object per record.

May import: building, outcomes.
"""
