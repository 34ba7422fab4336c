"""What stands in a data directory beside logs: identity, checkpoints, topic ids; and all of a broker's.

May import: files, segments, topic_names.
"""
