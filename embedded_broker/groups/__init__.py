"""The group coordinator: the groups of consumers, who is in them, and what they have committed.

Lives here: the records of ``__consumer_offsets`` and what they add up to, timers, and the seam between a
group and its membership, of which there is one for each of Kafka's protocols.
May import: answering, configs, topics.
"""
