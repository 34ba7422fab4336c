"""The log: Kafka's own files, byte for byte.

Lives here: the log of one partition (``log.py``) and its parts (files, segments with their indexes, producer
state, leader epochs, flushing, recovery, retention), compaction, data directories, the manager of all logs of
a broker, and tools that read logs from outside. Formats: ``docs/format/``. Reasons, in particular for the
order of writes, syncs and renames: ``docs/decisions/storage.md``. Used by broker, pipeline and command.
May import: model, record.
"""
