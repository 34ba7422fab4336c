"""Clients write transactions with offsets in them; the read_committed consumers of all see the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest
from support.clients.foreign_groups import ASK
from support.clients.foreign_transactions import CLIENTS
from support.kafka.kafka_reading import make_topic

from splashdam.embedded_broker.embedded import EmbeddedBroker

TOPIC, GROUP = "t", "movers"
SECONDS = 300
PLAN = [(b"a", True), (b"b", False), (b"c", True), (b"d", False), (b"e", True)]
"""Values of transactions, and whether each is committed; each also moves the group's offset to its number."""


def kafka_python_reads(servers: str, isolation_level: str) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers,
        group_id=None,
        auto_offset_reset="earliest",
        isolation_level=isolation_level,
    )
    place = kafka.TopicPartition(TOPIC, 0)
    try:
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        found: list[bytes] = []
        while consumer.position(place) < end:
            found += [record.value for record in consumer.poll(timeout_ms=SECONDS * 1000).get(place, [])]
        return found
    finally:
        consumer.close()


def confluent_reads(servers: str, isolation_level: str) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
            "log_level": 0,
        }
    )
    found: list[bytes] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, confluent_kafka.OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(SECONDS)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
                return found
            found.append(message.value())
    finally:
        consumer.close()


def aiokafka_reads(servers: str, isolation_level: str) -> list[bytes]:
    async def main() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level=isolation_level
        )
        place = aiokafka.TopicPartition(TOPIC, 0)
        await consumer.start()
        try:
            consumer.assign([place])
            end = (await consumer.end_offsets([place]))[place]
            found: list[bytes] = []
            while await consumer.position(place) < end:
                polled = await consumer.getmany(timeout_ms=1000)
                found += [record.value for record in polled.get(place, [])]
            return found
        finally:
            await consumer.stop()

    return asyncio.run(main())


READERS: dict[str, Callable[[str, str], list[bytes]]] = {
    "kafka-python": kafka_python_reads,
    "confluent-kafka": confluent_reads,
    "aiokafka": aiokafka_reads,
}


@pytest.fixture(scope="module", params=CLIENTS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedBroker]:
    """A broker to which one client has written its transactions; it has started again since."""
    data: Path = tmp_path_factory.mktemp("data")
    with EmbeddedBroker(data, fsync=False) as written:
        make_topic(written.bootstrap_servers, TOPIC)
        producer = CLIENTS[request.param](written.bootstrap_servers, "tx")
        for number, (value, is_commit) in enumerate(PLAN):
            producer.begin()
            producer.send(value)
            producer.send_offset(GROUP, number)
            (producer.commit if is_commit else producer.abort)()
        producer.close()
    with EmbeddedBroker(data, fsync=False) as running:
        yield running


@pytest.mark.parametrize("reader", READERS)
def test_what_was_committed_is_read(broker: EmbeddedBroker, reader: str) -> None:
    """Everything, or the committed values alone; markers are never records."""
    read = READERS[reader]
    assert read(broker.bootstrap_servers, "read_uncommitted") == [value for value, _ in PLAN]
    assert read(broker.bootstrap_servers, "read_committed") == [value for value, keep in PLAN if keep]


@pytest.mark.parametrize("client", ASK)
def test_the_groups_offset_is_that_of_the_last_commit(broker: EmbeddedBroker, client: str) -> None:
    """Transactions moved it, and an abort did not."""
    found = ASK[client](broker.bootstrap_servers, GROUP, TOPIC)
    assert found is not None
    assert found.offset == 4
