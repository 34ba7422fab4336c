"""The group coordinator: groups of both of Kafka's protocols, their members and committed offsets.

``group`` has what both of Kafka's group protocols have in common, ``classic/`` and ``consumer/`` (KIP-848) a
membership each; ``routing`` finds the one that a request is for. ``coordinator_shard`` is what one partition
of ``__consumer_offsets`` adds up to. Commits are checked in ``offset_commit`` and kept and expired in
``group_offsets``.
May import: configs, execution, topics.
"""
