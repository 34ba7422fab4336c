"""A Kafka broker in the box: server, handlers, and the log on disk.

Lives here: the front doors ``embedded.py``, ``embedded_cluster.py``, ``broker.py`` and ``cluster.py``;
behind them sub-rooms in layers. ``serving/`` receives requests, ``authorization/`` checks them and
``handlers/`` answers them, one file per API key. Handlers use ``topics/``, ``producing/``, ``fetching/``,
``groups/``, ``transactions/``, ``replication/`` and ``controller/``; settings are in ``configs/``.
``splashdam.testing`` and ``splashdam.console`` are imported only when a program asks for faults or a page.
Independent of client, sender and
accumulator.
May import: console, model, net, record, storage, testing, wire.
"""
