"""Arrow tables of any library as columns of bytes, numbers and headers.

May import: kernel.
"""
