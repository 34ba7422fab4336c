"""``splashdam pipeline``: what its commands share; each pipeline is a file in ``jobs/``.

pyspark is imported once a pipeline runs.
May import: clusters, endings, once, output, parameters.
"""
