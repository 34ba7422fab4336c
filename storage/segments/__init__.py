"""The segments of one log: the files of each, its batches and indexes, and the list of all segments.

May import: files, settings.
"""
