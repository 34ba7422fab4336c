"""Every test here runs on each Kafka that `make kafka` fetches, and is skipped without one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kafka.kafka_jars import VERSIONS, KafkaBroker, classpath
from support.pipeline.spark_fixture import nothing_is_kept_for_later

__all__ = ["broker", "nothing_is_kept_for_later", "version"]


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """A version of Kafka whose jars are there."""
    classpath(request.param)
    return str(request.param)


@pytest.fixture
def broker(version: str, tmp_path: Path) -> Iterator[KafkaBroker]:
    """A Kafka broker, running, with a directory of its own."""
    running = KafkaBroker(version, tmp_path / "kafka")
    running.start()
    yield running
    running.stop()
