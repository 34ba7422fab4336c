"""The pages, one file each: a module with a ``PAGE`` is a page, and its routes are served.

May import: routes, sampling.
"""
