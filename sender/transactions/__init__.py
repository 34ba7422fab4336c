"""A transactional producer's side of the protocol: states and calls, questions to coordinators, the gate.

May import: the room's root, accumulator, net, record, wire, model.
"""
