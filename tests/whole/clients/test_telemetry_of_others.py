"""Another client pushes its metrics to our broker (KIP-714), by the names that ours has, too."""

from __future__ import annotations

import threading
from pathlib import Path

import confluent_kafka

from splashdam import EmbeddedBroker
from splashdam.client.observing.metric_table import NODE, OWN, PRODUCER, TOPIC
from splashdam.client.observing.telemetry import telemetry_name
from splashdam.embedded_broker.telemetry.client_metrics import Push

TABLES = {
    "producer-metrics": (*PRODUCER, *OWN),
    "producer-node-metrics": NODE,
    "producer-topic-metrics": TOPIC,
}


def test_confluent_kafka_pushes(tmp_path: Path) -> None:
    """It finds the APIs, is subscribed, compresses what it has and pushes it; we understand each push."""
    arrived = threading.Event()
    with EmbeddedBroker(tmp_path, fsync=False) as broker:

        def count(push: Push) -> None:
            if len(broker.telemetry.pushes) >= 2:
                arrived.set()

        broker.telemetry.on_push = count
        broker.telemetry.subscribe(metrics=["org.apache.kafka.producer."], interval_ms=100)
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "client.id": "theirs",
                "log_level": 3,
            }
        )
        producer.produce("t", b"value")
        assert producer.flush(300) == 0
        assert arrived.wait(300)
        pushes = list(broker.telemetry.pushes)
    assert {push.client_id for push in pushes} == {"theirs"}
    ours = {telemetry_name(group, row.name) for group, rows in TABLES.items() for row in rows}
    names = set().union(*(push.names() for push in pushes))
    assert "org.apache.kafka.producer.request.latency.avg" in names
    assert names <= ours
