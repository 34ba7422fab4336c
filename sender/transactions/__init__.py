"""A transactional producer's side of the protocol: states, calls, requests to coordinators, the drain gate.

May import: broker_links, completion, context, idempotence, wakeup.
"""
