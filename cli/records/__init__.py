"""Records in and out: of topics, and of the files of a log.

May import: commands, connecting, exiting, output, parameters.
"""
