"""A producer's loop, its parts and its life: threads, forks, collection, exit.

May import: observing, sending, settings, transactions, waiters.
"""
