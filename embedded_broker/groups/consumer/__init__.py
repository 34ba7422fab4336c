"""Groups of the consumer protocol (KIP-848): the broker assigns, members follow heartbeat by heartbeat.

Lives here: a group as a function of its records, the assignors, what one heartbeat decides; all without I/O.
May import: classic, group, offset_records, pattern_parsing, patterns.
"""
