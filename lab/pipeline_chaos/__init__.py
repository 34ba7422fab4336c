"""``make pipeline-chaos``: ingests into tables of all formats are killed while a producer keeps sending.

The ingests share a driver in a process of its own (``driver``), which ``driver_process`` watches, kills and
starts again; ``__main__`` sends, kills, and compares each table with the log (``table_check``).
"""
