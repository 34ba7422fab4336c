"""A producer's core and loop, its connections, and its life in the process: forks, collection, exit.

May import: interceptors, local, observing, reports, sending, settings, transactions, waiters.
"""
