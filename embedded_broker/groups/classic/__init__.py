"""Groups whose members agree by JoinGroup and SyncGroup, and assign partitions among themselves.

Lives here: the state machine of such a group, without I/O; its records. Semantics: Kafka's ClassicGroup.
May import: consumer, group, offset_records, timers.
"""
