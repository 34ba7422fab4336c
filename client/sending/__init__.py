"""A record's way from ``send`` into an open batch, with waits for metadata and memory.

May import: future, interceptors, observing, partitioning, serializers, settings, waiters.
"""
