"""A transactional producer's side of the protocol: states, calls, requests to coordinators, the drain gate.

May import: completion, context, idempotence, links, wakeup.
"""
