"""TLS for clients and brokers: contexts from files, streams, and readable errors.

May import: connect, connection.
"""
