"""Producer ids, epochs and the sequence numbers of each partition.

May import: accumulator.
"""
