"""The audit of a log directory with Spark: gaps, duplicates, checksums, sequences, indexes, and its page.

May import: log_source, svg.
"""
