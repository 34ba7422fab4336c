"""The way from DataFrames into topics: the sink of ``kafka-local``.

Lives here: the sink's options and columns, what a task does (send, with a guarantee by choice), what the
driver does (decide, and end transactions), the classes that Spark calls, in ``writers.py`` alone, and for
readers of what ``delivery=dedup`` has written ``drop_duplicates``.
May import: clusters, options.
"""
