"""Batches that are built: records encoded as they are appended, one by one or from columns.

May import: model, record.
"""
