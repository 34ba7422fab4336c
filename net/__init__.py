"""Network and clocks: connecting, listening, and the one `Connection` that all clients share.

Clock, Connect and Listen (TCP, TLS and memory), Connection (framing, correlation ids, in-flight requests,
timeouts), SASL for both sides, a minimal fetch client, and ``admin/``: requests of administrators.
May import: model, record, wire.
"""
