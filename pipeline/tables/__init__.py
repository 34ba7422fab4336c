"""Tables that take a micro-batch exactly once: Parquet, Delta, Iceberg.

Lives here: one adapter per table format, each with the identity of the batch in the table's own log.
May import: as the room.
"""
