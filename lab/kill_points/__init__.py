"""``make kill-points``: SIGKILL at single system calls of compaction, moves of directories and reassignments.

``points`` learns the calls of an action, and draws those at which the process dies; ``killing`` makes it die
there, starts it again and waits for the end of the action. ``one_broker`` has compaction and moves between
data directories, ``reassignments`` those of a cluster.
"""
