"""The log: Kafka's own files, byte for byte.

Lives here: the log of one partition (``log.py``) and what it is made of, from files and indexes up to
segments, producers and recovery; cleaning, data directories, the manager of all logs, and inspection from
outside. Formats are in ``docs/format/``. Broker, pipeline and command use it.
May import: model, net, record.
"""
