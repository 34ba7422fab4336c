"""The seams to the world: clocks, connecting, listening, and the one Connection.

Lives here: Clock, Connect and Listen (TCP, TLS and memory), Connection (framing, correlation, in-flight,
timeouts), SASL for both sides, a minimal fetch client, and
``admin/``: what an administrator asks of a cluster.
May import: model, record, wire.
"""
