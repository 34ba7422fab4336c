"""Topics and segment files as Spark DataFrames.

Lives here: what the data sources share (options, schema, decoding, connections) and the session; the sources
are in ``local_source/`` (``kafka-local``) and ``log_source/`` (``kafka-log``), the way back into topics in
``sink/``, tables in ``tables/``, whole pipelines in ``jobs/`` and ``audit/``.
The only room that imports pyspark.
May import: client, model, net, record, storage, wire.
"""

from splashdam.pipeline.session import register, spark_session

__all__ = ["register", "spark_session"]
