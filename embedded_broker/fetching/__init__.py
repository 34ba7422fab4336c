"""Fetch sessions, one pass over their partitions, and the fetches that wait for bytes.

May import: answering, controller, topics.
"""
