"""``splashdam pipeline``: what its commands share; each pipeline is a file in ``jobs/``.

pyspark is imported once a pipeline runs.
May import: commands, connecting, exiting, output, parameters.
"""
