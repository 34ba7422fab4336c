"""From whatever files a crash left in a partition's directory to a log that can be used.

May import: producers, index, files, and the log.
"""
