"""The data directories of a broker: identity, checkpoints, topic ids, and what else lies in them.

May import: files, segments, topic_names.
"""
