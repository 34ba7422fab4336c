"""Behaviours of a Kafka broker as plain functions that any address can be held against.

``vocabulary`` is what a client is asked to do, in the words of all; ``clients/`` are those in Python,
``drivers/`` the programs of others, with ``line_up`` on our side of the pipe; ``raw_connection`` speaks the
protocol itself. ``behaviours/`` says what has to happen, ``running`` where it is known not to;
``running`` and ``line_up`` bring them together, ``report`` tells.
May import: nothing.
"""
