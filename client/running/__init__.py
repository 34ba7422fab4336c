"""A producer's loop, its parts and its life: threads, forks, collection, exit.

May import: interceptors, observing, reports, sending, settings, transactions, waiters.
"""
