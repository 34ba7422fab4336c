"""Administration of a cluster through a `ClusterClient`: topics, configurations, groups, transactions.

Each function sends one kind of request and converts its response.
May import: cluster, connection.
"""
