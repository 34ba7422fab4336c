"""Transactions through the embedded broker, in both protocols."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clients.prepared_scenarios import PREPARED_SCENARIOS
from support.clients.transaction_scenarios import SCENARIOS, Producers, Scenario

from splashdam.embedded_broker.embedded import EmbeddedBroker


@pytest.fixture(params=[0, 1, 2], ids=["tv0", "tv1", "tv2"])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a broker with that level of ``transaction.version``."""
    config = {
        "transaction.version": request.param,
        "offsets.topic.num.partitions": 1,  # Kafka's fifty are most of what a test would cost
        "transaction.state.log.num.partitions": 3,
    }
    with EmbeddedBroker(tmp_path, fsync=False, config=config) as broker:
        yield str(broker.bootstrap_servers)


@pytest.mark.parametrize("scenario", [*SCENARIOS, *PREPARED_SCENARIOS], ids=lambda each: each.__name__)
def test_on_the_embedded_broker(servers: str, scenario: Scenario) -> None:
    """As on any other broker."""
    producers = Producers(servers)
    try:
        scenario(servers, producers, "orders")
    finally:
        producers.close()
