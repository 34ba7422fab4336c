"""Several copies of a partition: a leader that waits for the others, followers that fetch from it.

``leader_state`` (who is in sync, how far everybody is) is pure. ``partition`` is the leader's side with its
log and those who wait, ``fetcher`` the follower's side over the real protocol; ``replica_manager`` does
what the controller says.
May import: configs, controller, fetching, topics.
"""
