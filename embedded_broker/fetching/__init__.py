"""Fetch sessions, reads of the partitions of a fetch, and the fetches of followers.

May import: controller, execution, topics.
"""
