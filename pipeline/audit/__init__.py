"""The audit of a log directory with Spark: gaps, duplicates, checksums, sequence numbers, indexes; and its
page.

May import: log_source, svg.
"""
