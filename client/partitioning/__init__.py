"""Which partition a record goes to.

May import: sending.
"""
