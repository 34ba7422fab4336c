"""Which partition a record goes to.

May import: future, sending.
"""
