"""The pages, one file each: a module with a ``PAGE`` is a page, and its routes are served.

May import: criteria, decoding, events, reading, routes, sampling, scan, sending.
"""
