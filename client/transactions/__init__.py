"""The transactional methods of both producers, and the consumed offsets of a transaction.

May import: running, sending, settings, waiters.
"""
