"""DeleteRecords as the admin clients of others send it, and what their consumers then see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.structs import TopicPartition as AioPartition

from splashdam import EmbeddedBroker, KafkaProducer

Delete = Callable[[str, str, int], int | None]
"""Deletes below an offset of partition 0; returns the low watermark where the client tells it."""


def by_kafka_python(servers: str, topic: str, offset: int) -> int | None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=servers)
    try:
        partition = kafka.TopicPartition(topic, 0)
        watermark = admin.delete_records({partition: offset})[partition]
        return int(watermark["low_watermark"] if isinstance(watermark, dict) else watermark)
    finally:
        admin.close()


def by_confluent(servers: str, topic: str, offset: int) -> int | None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": servers, "log_level": 0})
    (future,) = admin.delete_records([confluent_kafka.TopicPartition(topic, 0, offset)]).values()
    return int(future.result(300).low_watermark)


def by_aiokafka(servers: str, topic: str, offset: int) -> int | None:
    async def main() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        try:
            await admin.delete_records({AioPartition(topic, 0): RecordsToDelete(before_offset=offset)})
        finally:
            await admin.close()

    asyncio.run(main())
    return None


CLIENTS: dict[str, Delete] = {
    "kafka-python": by_kafka_python,
    "confluent-kafka": by_confluent,
    "aiokafka": by_aiokafka,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The broker's directory."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def broker(data: Path) -> Iterator[EmbeddedBroker]:
    """One broker for all clients; each has a topic of its own."""
    with EmbeddedBroker(data, fsync=False) as running:
        yield running


def read_all(servers: str, topic: str) -> list[tuple[int, bytes]]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    try:
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)  # below the start: the consumer hears so and goes to the earliest
        end = consumer.end_offsets([partition])[partition]
        found: list[tuple[int, bytes]] = []
        while not found or found[-1][0] < end - 1:
            for records in consumer.poll(1000).values():
                found += [(record.offset, record.value) for record in records]
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("client", CLIENTS)
def test_records_are_deleted(broker: EmbeddedBroker, client: str) -> None:
    """What is below is gone for a consumer that begins at 0, and the client hears the low watermark."""
    servers = broker.bootstrap_servers
    topic = f"deleted-by-{client}"
    with KafkaProducer(bootstrap_servers=servers) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
        producer.flush()
    assert CLIENTS[client](servers, topic, 7) in (7, None)
    assert read_all(servers, topic) == [(number, b"%d" % number) for number in range(7, 10)]


def test_the_start_outlives_the_broker(tmp_path: Path) -> None:
    """Asked of a second broker on the same directory."""
    with (
        EmbeddedBroker(tmp_path, fsync=False) as first,
        KafkaProducer(bootstrap_servers=first.bootstrap_servers) as producer,
    ):
        for number in range(5):
            producer.send("t", b"%d" % number)
        producer.flush()
        assert by_confluent(first.bootstrap_servers, "t", 3) == 3
    with EmbeddedBroker(tmp_path, fsync=False) as second:
        assert read_all(second.bootstrap_servers, "t") == [(3, b"3"), (4, b"4")]


def test_an_offset_above_the_end_is_told(broker: EmbeddedBroker) -> None:
    """OFFSET_OUT_OF_RANGE."""
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("short", b"x").get(300)
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        by_confluent(broker.bootstrap_servers, "short", 2)
    assert caught.value.args[0].code() == confluent_kafka.KafkaError.OFFSET_OUT_OF_RANGE
