"""What an administrator does to a cluster, over a `ClusterClient`: topics, configurations, groups.

Each function is one request and what its answer says.
May import: cluster, connection.
"""
