"""The topics that the pipeline's benchmarks read, created once per run in a broker process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
from broker.running import our_broker

from splashdam import KafkaProducer
from splashdam.testing.topics import create_topic

PARTITIONS = 4
_CHUNK = 20_000


@attrs.frozen
class Topic:
    """A topic with records in it.

    Attributes:
        name: name of the topic.
        size: bytes of a value.
        records: number of records.
        partitions: number of partitions.
    """

    name: str
    size: int
    records: int
    partitions: int = PARTITIONS


@attrs.frozen
class Broker:
    """The broker with the topics.

    Attributes:
        servers: address of the broker.
        data: its log directory.
    """

    servers: str
    data: Path


@contextmanager
def broker(home: Path) -> Iterator[Broker]:
    """Run ``splashdam broker`` as a process during the block."""
    with our_broker(home) as running:
        host, port = running.address
        yield Broker(f"{host}:{port}", home / "data")


def fill(servers: str, topic: Topic) -> None:
    """Create the topic and send its records: JSON values, no key, no compression."""
    create_topic(servers, topic.name, partitions=topic.partitions)
    with KafkaProducer(bootstrap_servers=servers, batch_size=1_000_000, linger_ms=5) as producer:
        for first in range(0, topic.records, _CHUNK):
            values = [
                value(number, topic.size) for number in range(first, min(first + _CHUNK, topic.records))
            ]
            producer.send_many(topic.name, values, partition=first // _CHUNK % topic.partitions)
        report = producer.flush()
    if report.failed:
        raise SystemExit(f"{report.failed:,} records were not taken by the broker")


def value(number: int, size: int) -> bytes:
    """Return a value of ``size`` bytes, different for each number."""
    head = b'{"id":%d,"at":"2026-01-01T00:00:00Z","amount":%d,"note":"' % (number, number * 7919 % 100_003)
    return head.ljust(size - 2, b"x") + b'"}'


def segments(data: Path, topic: Topic) -> list[Path]:
    """Return the segment files of a topic, partition by partition."""
    return [
        path
        for number in range(topic.partitions)
        for path in sorted((data / f"{topic.name}-{number}").glob("*.log"))
    ]
