"""The seam to the file system: files on disk and in memory, and the lock of a data directory.

May import: nothing.
"""
