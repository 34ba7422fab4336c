"""The audit of a log directory with Spark: gaps, duplicates, checksums, sequences, indexes, and its page.

May import: as the room.
"""
