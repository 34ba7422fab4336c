"""A producer's loop, its parts and its life: threads, forks, collection, exit.

May import: settings, sending, observing, sender, net.
"""
