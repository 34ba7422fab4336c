"""The producer against a real Kafka: one that `make kafka` starts, or the one in KAFKA_BOOTSTRAP_SERVERS."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest
from support.kafka.kafka_jars import VERSIONS, KafkaBroker
from support.kafka.kafka_reading import make_topic, served

from splashdam.client.producer import KafkaProducer

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
YOURS = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")


@pytest.fixture(scope="module", params=["yours"] if YOURS else VERSIONS)
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a real Kafka answers."""
    if YOURS:
        yield YOURS
        return
    broker = KafkaBroker(request.param, tmp_path_factory.mktemp("kafka"))
    broker.start()
    try:
        yield broker.bootstrap_servers
    finally:
        broker.stop()


def value_of(number: int) -> bytes | None:
    return None if number % 50 == 49 else b"value %d" % number


def key_of(number: int) -> bytes | None:
    return b"key" if number % 3 or number % 50 == 49 else None


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_record_arrives_once(servers: str, codec: str) -> None:
    """With its key, value, headers and time, in order, at the offset its future says."""
    topic = f"splashdam-{codec}-{uuid.uuid4().hex[:8]}"
    make_topic(servers, topic)
    with KafkaProducer(bootstrap_servers=servers, compression_type=codec) as producer:
        futures = [
            producer.send(
                topic,
                value_of(number),
                key=key_of(number),
                headers=[("number", b"%d" % number)] if number % 7 == 0 else None,
            )
            for number in range(2_000)
        ]
        metadata = [future.get(timeout=300) for future in futures]
    records = served(servers, topic)
    assert [each.offset for each in metadata] == [record.offset for record in records] == list(range(2_000))
    assert [each.timestamp for each in metadata] == [record.timestamp_ms for record in records]
    for number, record in enumerate(records):
        assert record.value == value_of(number)
        assert record.key == key_of(number)
        assert record.headers == ((("number", b"%d" % number),) if number % 7 == 0 else ())
