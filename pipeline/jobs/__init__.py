"""Whole pipelines, as functions that the command ``splashdam pipeline`` calls: one file each.

May import: as the room.
"""
