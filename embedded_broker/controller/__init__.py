"""Several brokers as one cluster: its members, the leaders of partitions, and how both change.

``state`` has the values: `ClusterState`, and `ClusterChange`, by which alone it changes. ``election`` (clean
and unclean), ``reassignment`` and ``replica_placement`` decide and are pure; ``controller`` keeps the state,
writes each change to its ``journal``, and tells the brokers. ``leadership`` is what handlers ask about the
cluster. A broker that is alone has a controller of its own: there is no other way to lead.
May import: execution.
"""
