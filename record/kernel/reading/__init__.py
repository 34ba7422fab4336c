"""Read batches: walk through their records, check, decode, search and compact them.

May import: building.
"""
