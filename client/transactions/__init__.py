"""The transactional methods of both producers, and the offsets that go with a transaction.

May import: running, sending, settings, waiters.
"""
