"""Topics and segment files as Spark DataFrames.

Lives here: data sources, sinks and jobs for PySpark; the only room that imports pyspark.
May import: every room but testing, cli and, of the broker, server and handlers.
"""
