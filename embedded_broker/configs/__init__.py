"""What can be set for brokers, topics, groups and client metrics: declared, described, changed and kept.

May import: nothing.
"""
