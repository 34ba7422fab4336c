"""Compaction: of each key the newest record stays, at its offset; the log is copied without the rest.

``cleaner.py`` decides which log is cleaned when, ``cleanable.py`` how far. ``cleaning.py`` is one cleaning,
in short turns between others' work: it fills a map of keys from the part that was never cleaned, and copies
groups of segments batch by batch (``batch_filter.py``); the log's swapper puts a copy into the place of its
sources. Semantics: Kafka's LogCleaner and Cleaner.
May import: background, directories, files, log, producers, segments, settings, transaction_marker.
"""
