"""A Spark session for this machine, with the settings that Python data sources need, and ours in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource


FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Off by default in Spark, which then refuses sources that could use it."""

_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    # Starts faster and takes less memory; what the sources do runs in Python workers.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
}


def spark_session(
    app_name: str = "splashdam",
    *,
    master: str | None = None,
    memory: str = "1g",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process, made if there is none, with ``kafka-local`` and ``kafka-log`` registered.

    Workers run the Python of this process (``PYSPARK_PYTHON`` wins where it is set), times are in UTC, and
    filters are pushed down into Python sources.

    Args:
        app_name: what Spark shows.
        master: Spark's master URL; by default what ``spark-submit`` or ``PYSPARK_SUBMIT_ARGS`` says, else
            ``local[*,4]``: all cores, four attempts for each task. With ``local…`` the session listens on
            loopback alone and has no web page.
        memory: the heap of the driver's JVM, where this call starts it; 450 MiB is Spark's least. Under
            ``spark-submit`` it runs already, and ``--driver-memory`` counts.
        settings: more of Spark's settings, which win.

    Raises:
        JavaMissingError: Spark finds no Java.
        ImportError: pyspark is not installed; ``pip install 'splashdam[spark]'``.
    """
    from pyspark.sql import SparkSession

    from splashdam.pipeline.java import need_java

    if not is_submitted(os.environ):
        need_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    given: dict[str, Any] = {
        "spark.sql.session.timeZone": "UTC",
        FILTER_PUSHDOWN: "true",
        **settings_of_master(master, memory, os.environ),
        **(settings or {}),
    }
    builder = SparkSession.builder.appName(app_name).config(map=given)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def is_submitted(environment: Mapping[str, str]) -> bool:
    """Whether ``spark-submit`` has started this program: then its JVM runs already, with its settings."""
    return "PYSPARK_GATEWAY_PORT" in environment


def settings_of_master(master: str | None, memory: str, environment: Mapping[str, str]) -> dict[str, str]:
    """What goes by where Spark runs; a setting given here would win over that of ``spark-submit``."""
    if master is None:
        if is_submitted(environment):
            return {}
        if "--master" in environment.get("PYSPARK_SUBMIT_ARGS", ""):
            return {"spark.driver.memory": memory}
        master = "local[*,4]"  # Spark gives up at once without a second attempt, and workers may start late
    local = _LOCAL if master.startswith("local") else {}
    return {"spark.master": master, "spark.driver.memory": memory, **local}


def register(spark: SparkSession) -> None:
    """Makes ``kafka-local`` and ``kafka-log`` known to a session, which any program may have made.

    Turns filter pushdown into Python sources on, without which Spark refuses sources that can use it.

    Args:
        spark: the session.
    """
    spark.conf.set(FILTER_PUSHDOWN, "true")
    for source in data_sources():
        spark.dataSource.register(source)


def data_sources() -> list[type[DataSource]]:
    """All that this room adds to Spark."""
    from splashdam.pipeline.local_source.data_source import KafkaLocalDataSource
    from splashdam.pipeline.log_source.data_source import KafkaLogDataSource

    return [KafkaLocalDataSource, KafkaLogDataSource]
