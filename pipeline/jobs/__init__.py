"""Whole pipelines, as functions that the command ``splashdam pipeline`` calls: one file per job.

May import: clusters, decoding, local_source, options, schema, sink, tables, values.
"""
