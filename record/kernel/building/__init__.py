"""Batches that are built: records encoded as they are appended, and the straight path there.

May import: outcomes.
"""
