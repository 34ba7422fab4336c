"""A Kafka broker in the box: server, handlers, and the log on disk.

Lives here: the trio server, ``handlers/`` with one file per API key, ``storage/`` (the log), ``cluster/``
(the controller), ``replication/``, the coordinators in ``groups/`` and ``transactions/``, and who may do what
and how often: ``security/``, ``authorization/``, ``quotas/``. Independent of client, sender and accumulator.
May import: model, net, record, storage, wire.
"""
