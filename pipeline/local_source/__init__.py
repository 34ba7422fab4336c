"""``kafka-local``: a topic of a running cluster as a DataFrame, batch and streaming.

Lives here: its options, which offsets are read (pure), the readers, pushdown of filters.
May import: clusters, decoding, filters, options, schema, sink.
"""
