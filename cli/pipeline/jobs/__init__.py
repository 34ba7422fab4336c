"""``splashdam pipeline …``: one file per pipeline, imported when it is asked for.

May import: query_progress, spark, topic_streams.
"""
