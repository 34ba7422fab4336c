"""The log: Kafka's own files, byte for byte.

Lives here: segments, indexes, checkpoints, recovery and producer state; formats are in ``docs/format/``.
May import: record, model.
"""
