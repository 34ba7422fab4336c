"""Transactions on a real Kafka: 3.9 knows the older protocol, 4 has KIP-890."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from support.clients.prepared_scenarios import PREPARED_SCENARIOS
from support.clients.transaction_scenarios import SCENARIOS, Producers, Scenario
from support.kafka.kafka_jars import VERSIONS, KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", params=VERSIONS)
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a real Kafka answers."""
    broker = KafkaBroker(request.param, tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker.bootstrap_servers
    broker.stop()


@pytest.mark.parametrize("scenario", [*SCENARIOS, *PREPARED_SCENARIOS], ids=lambda each: each.__name__)
def test_on_a_real_kafka(servers: str, scenario: Scenario) -> None:
    """As on the embedded broker."""
    producers = Producers(servers)
    try:
        scenario(servers, producers, f"splashdam-{uuid.uuid4().hex[:8]}")
    finally:
        producers.close()
