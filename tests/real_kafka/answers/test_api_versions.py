"""What the newest Kafka offers, and what we do: the same ranges, but for what is left out with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.kafka.kafka_jars import MEASURE, KafkaBroker

from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.testing.contract.raw_connection import RawConnection
from splashdam.testing.contract.skipped import SKIPPED
from splashdam.wire.messages.api_versions import ApiVersionsRequest

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


def ranges(servers: str) -> dict[int, tuple[int, int]]:
    """The versions of every request that a broker offers."""
    with RawConnection(*parse_bootstrap_servers(servers)[0]) as talk:
        offered = talk.ask(ApiVersionsRequest(), 0).api_keys
    return {each.api_key: (each.min_version, each.max_version) for each in offered}


def test_the_ranges_of_the_newest_kafka(broker: KafkaBroker, version: str, tmp_path: Path) -> None:
    """Key by key; whatever Kafka offers beyond that is in the table of what is left out."""
    if version != MEASURE:
        pytest.skip(f"Kafka {MEASURE} is the measure")
    with EmbeddedBroker(tmp_path / "ours", fsync=False) as ours:
        own, theirs = ranges(ours.bootstrap_servers), ranges(broker.bootstrap_servers)
    assert own == {key: found for key, found in theirs.items() if key not in SKIPPED}
