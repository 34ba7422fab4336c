"""The segments of one log: the files of each, its batches, and all of them in order, coming and going.

May import: files, index, settings.
"""
