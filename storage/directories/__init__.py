"""What stands in a data directory beside logs: identity, checkpoints, topic ids; and all of a broker's.

May import: segments (the names of files), files, topic_names.
"""
