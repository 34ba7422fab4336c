"""The newest offset of each key, from which compaction decides which records stay.

May import: building, reading.
"""
