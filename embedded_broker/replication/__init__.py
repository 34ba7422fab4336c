"""Replication: leaders that wait for in-sync replicas, followers that fetch from leaders.

``isr`` is pure: a leader's state of its followers, high watermark, ISR expansion and shrink. ``partition`` is
the leader's side, with its log and the requests that wait; ``replica_fetcher`` is the follower's side, by the
Kafka protocol. ``replica_manager`` applies the controller's decisions. ``cluster_member`` registers the
broker with the controller, and passes changes of the cluster to logs, replicas and coordinators.
May import: configs, controller, dynamic_configs, execution, fetching, topics.
"""
