"""Logs and data directories looked at from outside: nothing is changed, nothing in them is trusted.

May import: directories, files, leader_epochs, producers, segments, topic_names.
"""
