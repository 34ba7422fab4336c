"""All logs of one broker: topics are created and deleted, logs opened, moved, flushed, cleaned and closed.

``log_manager.py`` is the public face. Its parts name what they need of it as protocols.
May import: background, cleaning, directories, files, inspect, log, recovery, segments, settings, topic_names.
"""
