"""The log: Kafka's own files, byte for byte, read and written by broker, pipeline and command.

May import: record, model; and `splashdam.net.guard`, the lock of the directories that this process holds.
"""
