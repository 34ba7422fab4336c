"""Commands for records: written to topics, read from them, deleted there, and read from log files.

May import: commands, connecting, exiting, moments, output, parameters.
"""
