"""The seams to the world: clocks, connecting, listening, and the one Connection.

Lives here: Clock, Connect and Listen (TCP, TLS and memory), Connection (framing, correlation, in-flight,
timeouts), SASL for both sides, and a minimal fetch client.
May import: record, wire, model.
"""
