"""Every option of the producers: name, default, checks, and its spelling in Java and kafka-python.

May import: interceptors, observing, partitioning, serializers.
"""
