"""A broker of one's own: it runs, has users, and its directory is looked through.

May import: commands, exiting, output, parameters.
"""
