"""One call that tells a Spark session of the sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource


def register(spark: SparkSession) -> None:
    """Makes ``kafka-local`` and ``kafka-log`` known to a session, which any program may have made.

    Turns filter pushdown into Python sources on, without which Spark refuses sources that can use it.

    Args:
        spark: the session.
    """
    from splashdam.pipeline.session import FILTER_PUSHDOWN

    spark.conf.set(FILTER_PUSHDOWN, "true")
    for source in data_sources():
        spark.dataSource.register(source)


def data_sources() -> list[type[DataSource]]:
    """All that this room adds to Spark."""
    from splashdam.pipeline.local_source.data_source import KafkaLocalDataSource
    from splashdam.pipeline.log_source.data_source import KafkaLogDataSource

    return [KafkaLocalDataSource, KafkaLogDataSource]
