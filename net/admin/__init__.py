"""Administration of a cluster through a `ClusterClient`, a module for each kind of thing.

Each function sends one kind of request and converts its response.
May import: cluster, connection.
"""
