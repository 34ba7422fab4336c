"""The seam to the file system: what the log needs of files, on disk and in memory.

May import: model.
"""
