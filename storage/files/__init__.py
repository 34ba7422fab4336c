"""The seam to the file system: what the log needs of files, on disk and in memory, and a directory's lock.

May import: nothing.
"""
