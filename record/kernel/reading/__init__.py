"""Read batches: walk through their records, check, decode and search them.

May import: nothing.
"""
