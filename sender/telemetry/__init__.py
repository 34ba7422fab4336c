"""A client's metrics for a broker that asks for them (KIP-714).

May import: broker_links, context.
"""
