"""SASL, both sides: who is at the other end of a connection.

Lives here: the table of mechanisms (``mechanisms.py``), a file for each mechanism with its client and its
server as pure state machines, and the exchange over a ``Connection`` (``exchange.py``). A new mechanism is a
file and a row in the table. Nothing here is imported where nobody asks for SASL.
May import: connection, tls.
"""
