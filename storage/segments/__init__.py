"""The segments of one log: each with its files, and all of them in their order, coming and going.

May import: index, files, settings.
"""
