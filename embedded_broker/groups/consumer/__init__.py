"""Groups of the consumer protocol (KIP-848): the broker assigns, members follow heartbeat by heartbeat.

``group`` is a group as a function of its ``records``, ``heartbeat`` what one heartbeat decides (epochs,
fencing, the way to a new assignment), ``assignors`` the target assignment, ``membership`` timers and writes.
``migration`` converts from and to the classic protocol, ``classic_members`` serves members that still speak
it.
May import: classic, group, offset_records, patterns.
"""
