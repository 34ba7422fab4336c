"""Clients that we did not write produce to the embedded broker and read from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.errors
import pytest
from support.clients.foreign_clients import (
    PRODUCERS,
    READERS,
    Sent,
    aiokafka_produce,
    confluent_produce,
    kafka_python_produce,
)

from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.record.batch import iter_headers

PARTITIONS = 3
RECORDS = [
    Sent(
        number % PARTITIONS,
        b"key %d" % number if number % 4 else None,
        b"value %d " % number * (number % 50) if number % 9 or not number % 4 else None,
        [("n", b"%d" % number), ("n", b"")] if number % 5 else [],
    )
    for number in range(500)
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The broker's directory."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def broker(data: Path) -> Iterator[EmbeddedBroker]:
    """One broker for all tests here; each has a topic of its own."""
    with EmbeddedBroker(data, fsync=False, num_partitions=PARTITIONS, log_segment_bytes=50_000) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name for this test's topic."""
    return "".join(letter if letter.isalnum() else "_" for letter in request.node.name)


def check_read_back(broker: EmbeddedBroker, topic: str, records: list[Sent] = RECORDS) -> None:
    expected = {
        number: [each for each in records if each.partition == number] for number in range(PARTITIONS)
    }
    for name, read in READERS.items():
        assert read(broker.bootstrap_servers, topic, len(records)) == expected, name


@pytest.mark.parametrize("client", PRODUCERS)
def test_defaults(broker: EmbeddedBroker, topic: str, client: str) -> None:
    """Each client's own defaults: offsets are right, and both readers get content and order."""
    offsets = PRODUCERS[client](broker.bootstrap_servers, topic, RECORDS)
    assert offsets == [number // PARTITIONS for number in range(len(RECORDS))]
    check_read_back(broker, topic)


CODECS = ["gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_idempotent(broker: EmbeddedBroker, topic: str, codec: str) -> None:
    """kafka-python, idempotent, with every codec."""
    kafka_python_produce(
        broker.bootstrap_servers, topic, RECORDS, enable_idempotence=True, compression_type=codec
    )
    check_read_back(broker, topic)


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_idempotent(broker: EmbeddedBroker, data: Path, topic: str, codec: str) -> None:
    """confluent-kafka, idempotent, with every codec: no codec is switched off, since Produce begins at 0."""
    confluent_produce(
        broker.bootstrap_servers,
        topic,
        RECORDS,
        enable_idempotence=True,
        compression_codec=codec,
        linger_ms=20,
    )
    check_read_back(broker, topic)
    logs = list(data.glob(f"{topic}-*/*.log"))
    assert len(logs) >= PARTITIONS
    for log in logs:
        codecs = {header.codec.name.lower() for _, header in iter_headers(log.read_bytes())}
        assert codecs == {codec}


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_idempotent(broker: EmbeddedBroker, topic: str, codec: str) -> None:
    """aiokafka, idempotent, with every codec."""
    aiokafka_produce(
        broker.bootstrap_servers, topic, RECORDS, enable_idempotence=True, compression_type=codec
    )
    check_read_back(broker, topic)


@pytest.mark.parametrize(
    ("client", "options"),
    [
        ("kafka-python", {"acks": 0, "enable_idempotence": False}),
        ("confluent-kafka", {"acks": 0}),
        ("aiokafka", {"acks": 0}),
        ("kafka-python", {"acks": 1, "enable_idempotence": False}),
    ],
)
def test_fewer_acks(broker: EmbeddedBroker, topic: str, client: str, options: dict[str, Any]) -> None:
    """Without acknowledgement the records arrive all the same."""
    kafka_python_produce(broker.bootstrap_servers, topic, RECORDS[:1])
    PRODUCERS[client](broker.bootstrap_servers, topic, RECORDS[1:], **options)
    check_read_back(broker, topic)


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    """What was acknowledged before a stop is read after the next start, and new records follow it."""
    for round_ in range(1, 4):
        with EmbeddedBroker(
            tmp_path, fsync=False, num_partitions=PARTITIONS, log_segment_bytes=50_000
        ) as broker:
            for produce in PRODUCERS.values():
                produce(broker.bootstrap_servers, "t", RECORDS[:60])
            check_read_back(broker, "t", RECORDS[:60] * 3 * round_)


def test_record_that_is_refused(broker: EmbeddedBroker, topic: str) -> None:
    """A record that is too large fails by itself, and the idempotent producer goes on."""
    options = {"enable_idempotence": True, "message_max_bytes": 5_000_000}
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        confluent_produce(broker.bootstrap_servers, topic, [Sent(0, None, bytes(2_000_000), [])], **options)
    assert confluent_produce(broker.bootstrap_servers, topic, RECORDS[:1], **options) == [0]


def test_confluent_lists_topics(broker: EmbeddedBroker, topic: str) -> None:
    """librdkafka's Metadata request has three bytes behind its end, which Kafka ignores too."""
    confluent_produce(broker.bootstrap_servers, topic, RECORDS[:1])
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    assert len(admin.list_topics(timeout=10).topics[topic].partitions) == PARTITIONS


def test_admin_client(broker: EmbeddedBroker, topic: str) -> None:
    """kafka-python's admin creates, lists and deletes topics."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        admin.create_topics([kafka.admin.NewTopic(topic, 2, 1)])
        assert topic in admin.list_topics()
        with pytest.raises(kafka.errors.TopicAlreadyExistsError):
            admin.create_topics([kafka.admin.NewTopic(topic, 2, 1)])
        admin.delete_topics([topic])
        assert topic not in admin.list_topics()
    finally:
        admin.close()


def test_offsets_by_time(broker: EmbeddedBroker, topic: str) -> None:
    """kafka-python's consumer finds offsets by time and the ends of partitions."""
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for timestamp in (1000, 2000, 3000):
        producer.send(topic, b"x", partition=0, timestamp_ms=timestamp).get(300)
    producer.close()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, group_id=None, enable_auto_commit=False
    )
    try:
        partition = kafka.TopicPartition(topic, 0)
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 3}
        assert consumer.offsets_for_times({partition: 1500})[partition].offset == 1
        assert consumer.offsets_for_times({partition: 3001})[partition] is None
    finally:
        consumer.close()
