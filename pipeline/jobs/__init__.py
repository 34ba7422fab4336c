"""Whole pipelines, as functions that the command ``splashdam pipeline`` calls: one file per job.

May import: clusters, decoding, failures, local_source, options, schema, session, sink, tables, values.
"""
