"""Behaviours of a Kafka broker as plain functions that any address can be held against.

May import: every room but pipeline and cli.
"""
