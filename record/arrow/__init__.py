"""Arrow tables of any library as columns of bytes, numbers and headers, through the PyCapsule interface.

May import: kernel.
"""
