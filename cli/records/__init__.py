"""Commands for records: written to and read from topics, and read from log files.

May import: commands, connecting, exiting, output, parameters.
"""
