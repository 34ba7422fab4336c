"""A record's way from ``send`` into an open batch, straight or with waits for metadata and memory.

May import: future, interceptors, observing, partitioning, serializers, settings, waiters.
"""
