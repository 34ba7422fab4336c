"""A Kafka broker in the box: server, handlers, and the log on disk.

Lives here: the trio server, one handler file per API key, and ``storage/``. Independent of client, sender and
accumulator.
May import: net, record, wire, model.
"""
