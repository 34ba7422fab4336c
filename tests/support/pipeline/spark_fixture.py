"""The fixture `spark`: one session for all tests that start a JVM; they are skipped where that cannot be."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores, four attempts per task, everything on loopback."""
    pytest.importorskip("pyspark", reason="needs splashdam[spark]")
    from splashdam.pipeline.session import JavaMissingError, spark_session

    try:
        session = spark_session(
            "splashdam tests",
            master="local[2,4]",
            memory="768m",
            settings={"spark.driver.extraJavaOptions": QUICK_START, **_connector()},
        )
    except JavaMissingError as missing:
        pytest.skip(str(missing))
    session.sparkContext.setLogLevel("ERROR")
    yield session
    _end(session)


def _end(session: SparkSession) -> None:
    """Ends the JVM, too: pyspark keeps it, with its pipe and sockets, for the next session of the process."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    session.stop()
    assert gateway is not None
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()  # which is what it waits for
    gateway.proc.wait()


def _connector() -> dict[str, str]:
    """Spark's own Kafka connector, where `make spark-connector` says that its jars are."""
    jars = os.environ.get("SPARK_KAFKA_JARS")
    return {"spark.jars": ",".join(map(str, sorted(Path(jars).glob("*.jar"))))} if jars else {}


@pytest.fixture(autouse=True)
def nothing_is_kept_for_later() -> Iterator[None]:
    """Readers of clusters and producers live as long as their process, for the tasks that follow."""
    yield
    clusters = sys.modules.get("splashdam.pipeline.clusters")
    if clusters is not None:
        while clusters._readers:
            clusters._readers.popitem()[1].close()
    producers = sys.modules.get("splashdam.pipeline.sink.sending")
    if producers is not None:
        while producers.CACHE._kept:
            producers.CACHE._kept.popitem()[1].producer.close(0)
    pool = sys.modules.get("pyiceberg.utils.concurrent")
    if pool is not None and pool.ExecutorFactory._instance is not None:
        pool.ExecutorFactory._instance.shutdown()
        pool.ExecutorFactory._instance = None
