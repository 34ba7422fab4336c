"""SASL for clients and brokers.

The table of mechanisms (``mechanisms.py``), a file for each mechanism with its client and server as pure
state machines, and the exchange over a ``Connection`` (``exchange.py``). To add a mechanism, add a file and a
row in the table. Without SASL nothing of this room is imported. May import: connection, tls.
"""
