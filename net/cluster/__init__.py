"""Clients of a whole cluster: they find leaders, coordinators and the controller, and read records.

May import: clock, connect, connection.
"""
