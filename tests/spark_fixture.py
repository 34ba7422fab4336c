"""The fixture `spark`: one session for all tests that start a JVM; they are skipped where that cannot be."""

from __future__ import annotations

import os
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
    from splashdam.pipeline.java import JavaMissingError
    from splashdam.pipeline.session import spark_session

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
    session.stop()


def _connector() -> dict[str, str]:
    """Spark's own Kafka connector, where `make spark-connector` says that its jars are."""
    jars = os.environ.get("SPARK_KAFKA_JARS")
    return {"spark.jars": ",".join(map(str, sorted(Path(jars).glob("*.jar"))))} if jars else {}
