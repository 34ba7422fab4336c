"""The vocabulary that all rooms share: topic partitions, metadata, errors, options.

Plain values and the error tree. No I/O, no clock, no thread.
May import: nothing.
"""
