"""A transactional producer's side of the protocol: states, calls, questions to coordinators.

May import: idempotence, metadata.
"""
