"""``splashdam pipeline``: the parts that its commands share; each pipeline is a file in ``jobs/``.

pyspark is imported when a pipeline runs, not before.
May import: commands, connecting, exiting, output, parameters.
"""
