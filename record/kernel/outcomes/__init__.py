"""The outcome of a batch and its records: states, waiters, delivery futures and callbacks.

May import: nothing.
"""
