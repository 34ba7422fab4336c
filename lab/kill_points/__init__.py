"""``make kill-points``: SIGKILL at single system calls of compaction, moves of logs and reassignments.

``points`` selects the calls of an action at which the process is killed; ``killing`` kills it there,
starts it again and waits for the end of the action. ``one_broker`` has compaction and moves between data
directories, ``reassignments`` has the reassignments of a cluster.
"""
