"""A directory that Apache Kafka wrote is served as it is, to clients that we did not write."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import kafka
import pytest
from support.clients.foreign_clients import Sent, kafka_python_produce
from support.running.oracles import shared

from splashdam.embedded_broker.embedded import EmbeddedBroker

TIMEOUT_MS = 30_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker on a copy of Kafka's files: 2,000 records of producer 0, four transactions of producer 1."""
    for original, name in [("gold-0-original", "gold-0"), ("goldc-0-compacted", "goldc-0")]:
        shutil.copytree(shared("golden") / original, tmp_path / name, copy_function=shutil.copyfile)
    with EmbeddedBroker(tmp_path, fsync=False) as running:
        yield running


def read(
    broker: EmbeddedBroker, topic: str, isolation_level: str
) -> list[tuple[int, bytes | None, bytes | None]]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level=isolation_level,
    )
    partition = kafka.TopicPartition(topic, 0)
    try:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        found: list[tuple[int, bytes | None, bytes | None]] = []
        while consumer.position(partition) < end:
            records = consumer.poll(timeout_ms=TIMEOUT_MS).get(partition, [])
            found += [(record.offset, record.key, record.value) for record in records]
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize(("isolation_level", "count"), [("read_uncommitted", 2080), ("read_committed", 2040)])
def test_records_and_transactions(broker: EmbeddedBroker, isolation_level: str, count: int) -> None:
    """B25: aborted transactions are hidden from those who ask for it; markers are never records."""
    found = read(broker, "gold", isolation_level)
    assert len(found) == count
    assert found[:2000] == [(i, b"k%d" % (i % 50), b"v%05d" % i * 10) for i in range(2000)]
    transactions = {value.partition(b"-")[0] for _, _, value in found[2000:] if value is not None}
    committed = {b"tx0", b"tx2"}
    assert transactions == (
        committed if isolation_level == "read_committed" else {b"tx0", b"tx1", b"tx2", b"tx3"}
    )


def test_read_committed_with_confluent(broker: EmbeddedBroker) -> None:
    """librdkafka hides the same records."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("gold", 0, confluent_kafka.OFFSET_BEGINNING)])
    count = 0
    while (message := consumer.poll(TIMEOUT_MS / 1000)) is not None and message.error() is None:
        count += 1
    consumer.close()
    assert count == 2040
    assert message is not None
    assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF


def test_compacted_topic(broker: EmbeddedBroker) -> None:
    """Gaps, empty segments and a delete horizon are Kafka's affair and no hindrance."""
    found = read(broker, "goldc", "read_uncommitted")
    assert [offset for offset, _, _ in found] == [*range(2960, 3005)]
    assert [value for _, _, value in found[-5:]] == [b"last"] * 5


def test_new_producers_are_not_taken_for_old_ones(broker: EmbeddedBroker) -> None:
    """Ids start above those in the directory: else a new producer's first batches would count as repeats."""
    records = [Sent(0, None, b"%d" % number, []) for number in range(10)]
    offsets = kafka_python_produce(broker.bootstrap_servers, "gold", records, enable_idempotence=True)
    assert offsets == list(range(2084, 2094))
