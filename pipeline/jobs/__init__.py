"""Whole pipelines, as functions that the command ``splashdam pipeline`` calls: one file each.

May import: decoding, local_source, option_values, schema, sink, tables, values.
"""
