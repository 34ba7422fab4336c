"""TLS on both sides: contexts from files, streams, and errors in words.

May import: connect, connection.
"""
