"""``kafka-log``: Kafka segment files as a DataFrame, read from disk or object storage without a broker.

Lives here: filesystems, slices of segments (pure), the reader of records and that of batches.
May import: decoding, filters, local_source, options, schema.
"""
