"""Which partition a record goes to.

May import: record, model.
"""
