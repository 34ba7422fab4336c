"""The log: Kafka's own files, byte for byte.

Lives here: segments, indexes, producer state, recovery, cleaning, data directories and the manager of
all logs, on disk and in memory; formats are in ``docs/format/``. Broker, pipeline and command use it.
May import: record, model; and of net the lock of `splashdam.net.guard`.
"""
