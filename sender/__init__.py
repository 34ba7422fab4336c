"""The trio task that drains the accumulator into ProduceRequests.

Lives here: the Sender and its parts: what it knows of the cluster and asks of it, links to brokers, shipping
and completion of batches, idempotence. ``transactions`` and ``telemetry`` are loaded where they are used.
May import: accumulator, model, net, record, wire.
"""
