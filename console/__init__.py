"""A page to look into broker and producer: ``splashdam console``, ``splashdam broker --console``.

Lives here: routes as data (``routes.py``), the pages (``pages/``, one file each), templates and static files,
who may do what (``guard.py``), rates from offsets that are sampled while somebody looks (``sampling.py``).
Loaded only when asked for; it reads a cluster by the Kafka protocol, and its own process through narrow
protocols of the values in ``model/views/cluster.py``.
May import: model, net, record, wire.
"""
