"""Commands for a broker of one's own: serving, users, checking its directory.

May import: commands, exiting, output, parameters.
"""
