"""What stands in a data directory beside logs: its lock, its identity, its checkpoints.

May import: files.
"""
