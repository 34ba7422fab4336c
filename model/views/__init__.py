"""What one sees of a cluster, a log and a producer: frozen values, with units in their names.

May import: alive, lifecycle, values.
"""
