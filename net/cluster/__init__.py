"""Clients of a whole cluster: they find leaders, read records, and serve the pipeline, `tail` and followers.

May import: clock, connect, connection.
"""
