"""What clients may rely on in a Kafka cluster, as plain functions that run against any address.

``behaviours/`` has the promises, ``behaviour`` the tools to write one. They run through clients with the
operations of ``vocabulary``: those in ``clients/``, and processes in other languages (``available_clients``).
Some need single requests, and use a ``raw_connection``; ``cluster_behaviours`` stop and kill brokers.
``running`` judges, ``report`` writes the tables, and ``skipped`` lists the requests that the embedded broker
does not serve.
May import: nothing.
"""
