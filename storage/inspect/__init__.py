"""Read-only tools for logs and data directories: nothing is changed, and no content is trusted.

May import: directories, files, leader_epochs, producers, segments, topic_names.
"""
