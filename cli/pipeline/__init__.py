"""``splashdam pipeline``: what its commands share; each pipeline is a file in ``jobs/``.

May import: what ``cli`` may; pyspark is imported once a pipeline runs.
"""
