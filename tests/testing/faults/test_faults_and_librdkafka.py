"""confluent-kafka, which checks answers byte by byte, meets every kind of fault and recovers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from splashdam import EmbeddedBroker

confluent_kafka = pytest.importorskip("confluent_kafka")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path, fsync=False) as running:
        yield running


def complaints(found: list[Any]) -> dict[str, Any]:
    """Settings with which librdkafka tells what it could not read."""
    return {"logger": type("Logger", (), {"log": lambda _, level, text, *rest: found.append(text % rest)})()}


def test_producer(broker: EmbeddedBroker) -> None:
    """Each record is there once, whatever became of the requests."""
    servers = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    producer = confluent_kafka.Producer({**servers, "enable.idempotence": True, "retry.backoff.ms": 1})
    offsets: list[int] = []
    faults: list[dict[str, Any]] = [
        {"error": "NOT_LEADER_OR_FOLLOWER"},
        {"error": "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "after": True},
        {"drop": "before"},
        {"drop": "after"},
        {"cut_after_bytes": 9},
    ]
    for options in faults:
        with broker.faults.produce(times=1, **options) as fault:
            producer.produce("t", b"v", on_delivery=lambda _, message: offsets.append(message.offset()))
            assert producer.flush(300) == 0
            assert fault.hits == 1
    assert offsets == [0, 1, 2, 3, 4]


def test_null_records_of_a_refused_fetch(broker: EmbeddedBroker) -> None:
    """librdkafka took an answer with an error and null records for a broken one, and said so."""
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    producer = confluent_kafka.Producer({**servers, "log_level": 0})
    producer.produce("t", b"v")
    producer.flush(300)
    said: list[str] = []
    consumer = confluent_kafka.Consumer(
        {**servers, "group.id": "g", "auto.offset.reset": "earliest", "fetch.error.backoff.ms": 1},
        **complaints(said),
    )
    consumer.assign([confluent_kafka.TopicPartition("t", 0)])
    with broker.faults.fetch(topic="t", error="NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        found = consumer.poll(10)
    consumer.close()
    assert (found.value(), fault.hits) == (b"v", 2)
    assert [text for text in said if "PROTOERR" in text] == []
