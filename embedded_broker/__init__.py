"""A Kafka broker in the box: server, handlers, and the log on disk.

Lives here: the front doors ``embedded.py``, ``embedded_cluster.py``, ``broker.py`` and ``cluster.py``;
behind them sub-rooms in layers. Requests come in by ``serving/``, are guarded in ``authorization/`` and
answered in ``handlers/``, one file per API key; what these ask is in ``topics/``, ``producing/``,
``fetching/``, ``groups/``, ``transactions/``, ``replication/`` and ``controller/``; settings are in
``configs/``. ``splashdam.testing`` is imported when a program asks for faults, and not before. Independent
of client, sender and accumulator.
May import: model, net, record, storage, testing, wire.
"""
