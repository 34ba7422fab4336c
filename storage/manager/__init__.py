"""All logs of one broker: topics made and deleted, logs opened, moved, kept in order, lost and closed.

``log_manager.py`` is the door. Its parts name, as protocols, what they need of it.
May import: background, cleaning, directories, files, log, recovery, settings, topic_names.
"""
