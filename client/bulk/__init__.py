"""``send_many`` and ``send_arrow``: many records in one call, and their report.

May import: partitioning, reports, sending.
"""
