"""Logs and data directories looked at from outside: nothing is changed, nothing in them is trusted.

May import: directories, files, index, leader_epochs, producers, recovery, segments, topic_names.
"""
