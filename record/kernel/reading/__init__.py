"""Batches that are read: walked, checked, decoded to records or columns, searched and compacted.

May import: building.
"""
