"""Every option of the producers: its name, its default, its rule, and how others write it.

May import: interceptors, observing, partitioning, serializers.
"""
