"""A transactional producer's side of the protocol: states and calls, questions to coordinators, the gate.

May import: completion, context, idempotence, links, wakeup.
"""
