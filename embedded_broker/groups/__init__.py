"""The group coordinator: the offsets that groups have committed; who is a member of a group is not known yet.

Lives here: the records of ``__consumer_offsets``, what they add up to, and who may commit.
May import: embedded_broker, record, wire, model.
"""
