"""Groups of the classic protocol: members use JoinGroup and SyncGroup, and their leader assigns.

``membership`` has states, generations and rebalance timeouts, ``join_group`` who is let in, ``members``
static members, the leader and the choice of an assignor; all without I/O. Semantics: Kafka's
``ClassicGroup``.
May import: group, offset_records, timers.
"""
