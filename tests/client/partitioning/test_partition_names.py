"""What the embedded broker refuses reaches people with the partition's name in it, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.model.broker_errors import BrokerResponseError

REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a record without a key": ({"log.cleanup.policy": "compact"}, {"value": b"v"}),
    "a record of long ago": (
        {"log.message.timestamp.before.max.ms": 1_000},
        {"value": b"v", "timestamp_ms": 1},
    ),
    "a record that is too large": ({"message.max.bytes": 100}, {"value": b"v" * 500}),
}


@pytest.mark.parametrize(("config", "record"), REFUSED.values(), ids=list(REFUSED))
def test_a_refused_record_names_its_partition_once(
    tmp_path: Path, config: dict[str, Any], record: dict[str, Any]
) -> None:
    """Once ``topic-0-0: topic-0-0: …``: the broker's answer and the producer both put it in front."""
    with (
        EmbeddedBroker(tmp_path, fsync=False, config=config) as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        for _ in range(3):  # the first one as every request, those behind it straight to the log
            future = producer.send("topic-0", **record)
            report = producer.flush()
            error = future.exception
            assert isinstance(error, BrokerResponseError)
            assert str(error).count("topic-0-0") == 1
            assert str(report).count("topic-0-0") == 1
