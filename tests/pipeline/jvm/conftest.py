"""The topics that both connectors read; skipped where Spark's connector was not fetched."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from support.pipeline.connector_topics import Books, filled

from splashdam import EmbeddedBroker


@pytest.fixture(scope="session", autouse=True)
def _connector_is_there() -> None:
    """Before a session is started in vain."""
    if not os.environ.get("SPARK_KAFKA_JARS"):
        pytest.skip("needs Spark's own Kafka connector, which `make spark-connector` fetches")


@pytest.fixture(scope="session")
def books(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Books]:
    """A broker on TCP with the topics in it."""
    directory = tmp_path_factory.mktemp("connectors")
    with EmbeddedBroker(directory, fsync=False) as broker, filled(broker.bootstrap_servers) as books:
        yield books
