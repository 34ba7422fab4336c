"""What became of a batch and its records: states, handles, futures' cells and callbacks.

May import: nothing.
"""
