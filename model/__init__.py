"""The vocabulary every room shares: topic partitions, metadata, errors, options.

Lives here: plain values and the error tree. No I/O, no clock, no thread.
May import: nothing.
"""
