"""Compaction: the newest record of each key stays, at its offset. Semantics: Kafka's LogCleaner and Cleaner.

``log_cleaner.py`` decides which log is cleaned, when, and how far. ``cleaning.py`` is one cleaning, in short
turns between the other work of the broker: it fills a map of keys from the dirty part of the log, then
copies groups of segments batch by batch (``batch_filter.py``; the rule for a record is the map's, in
``record/kernel/compacting``). The log's ``SegmentSwapper`` replaces the
sources of a copy by the copy. Reasons: docs/decisions/cleaning.md.
May import: background, directories, files, log, producers, segments, settings, transaction_marker.
"""
