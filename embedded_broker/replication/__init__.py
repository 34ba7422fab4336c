"""Several copies of a partition: a leader that waits for the others, followers that fetch from it.

``isr`` is pure: what a leader knows of its followers, high watermark, ISR expansion and shrink.
``partition`` is the leader's side with its log and those who wait, ``replica_fetcher`` the follower's side
over the real protocol; ``replica_manager`` does what the controller says. ``cluster_member`` is the broker
as the controller knows it: it hands changes of the cluster to logs, replicas and coordinators.
May import: answering, configs, controller, dynamic_configs, fetching, topics.
"""
