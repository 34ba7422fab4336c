"""What clients may rely on in a Kafka cluster, as plain functions that run against any address.

``behaviours/`` are the promises, ``behaviour`` is what they are written with. They run through clients, which
all have the operations of ``vocabulary``: those in ``clients/`` and processes in other languages
(``available_clients``), or through a ``raw_connection``. ``running`` judges, ``report`` writes the tables,
``skipped`` lists the requests that the embedded broker leaves out.
May import: nothing.
"""
