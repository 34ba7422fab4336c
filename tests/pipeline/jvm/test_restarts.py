"""Streams that end and go on from their checkpoint, while the topic changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from support.pipeline.connector_kit import FORMATS, Stream
from support.pipeline.connector_topics import Books, create, delete_records

from splashdam import KafkaProducer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.spark_jvm]

Send = Callable[[int, range], None]


@pytest.fixture(params=FORMATS)
def word(request: pytest.FixtureRequest) -> str:
    """A format."""
    return str(request.param)


@pytest.fixture
def topic(books: Books, word: str, request: pytest.FixtureRequest) -> str:
    """A topic of one test and format, with two partitions."""
    name = f"{request.function.__name__}-{word}"
    create(books.servers, {name: 2})
    return name


@pytest.fixture
def send(books: Books, topic: str) -> Iterator[Send]:
    """Sends numbers to a partition."""
    with KafkaProducer(bootstrap_servers=books.servers) as producer:

        def send(partition: int, numbers: range) -> None:
            for number in numbers:
                producer.send(topic, b"%d" % number, partition=partition)
            producer.flush()

        yield send


@pytest.fixture
def stream(spark: SparkSession, books: Books, tmp_path: Path, word: str, topic: str) -> Stream:
    """Reads the topic from its earliest offsets."""
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    return Stream(spark, tmp_path, word, books.servers, options)


def numbers(stream: Stream) -> list[int]:
    """The records that have arrived."""
    return sorted(int(each.value or b"-1") for each in stream.rows())


def test_goes_on(stream: Stream, send: Send) -> None:
    """Nothing twice, nothing left out."""
    send(0, range(5))
    assert sum(stream.run()) == 5
    send(0, range(5, 9))
    send(1, range(9, 12))
    assert sum(stream.run()) == 7
    assert stream.run() == []
    assert numbers(stream) == list(range(12))


def test_options_of_the_start_are_for_the_first_run(stream: Stream, send: Send) -> None:
    """The checkpoint wins over what is said later."""
    send(0, range(5))
    stream.run()
    send(0, range(5, 8))
    stream.run(startingOffsets="latest")
    assert numbers(stream) == list(range(8))


def test_begins_at_the_end(stream: Stream, send: Send) -> None:
    """Records that arrive between two runs are read, those before the first run are not."""
    send(0, range(5))
    send(1, range(5, 7))
    stream.run(startingOffsets="latest")
    send(0, range(7, 9))
    stream.run(startingOffsets="latest")
    assert numbers(stream) == [7, 8]


def test_a_new_partition_begins_at_its_head(stream: Stream, send: Send, books: Books, topic: str) -> None:
    """Although the query began at the end of those that were there."""
    send(0, range(3))
    stream.run(startingOffsets="latest")
    admin = AdminClient({"bootstrap.servers": books.servers})
    for each in admin.create_partitions([NewPartitions(topic, 3)]).values():
        each.result(300)
    with KafkaProducer(bootstrap_servers=books.servers) as producer:
        producer.send(topic, b"3", partition=2).get(300)
    stream.run(startingOffsets="latest")
    assert numbers(stream) == [3]


def test_lost_records(stream: Stream, send: Send, books: Books, topic: str) -> None:
    """Records that were deleted unread end the query, unless it is told that they may be."""
    send(0, range(5))
    stream.run()
    send(0, range(5, 10))
    delete_records(books.servers, topic, 8)
    with pytest.raises(Exception, match="failOnDataLoss"):
        stream.run()
    stream.run(failOnDataLoss="false")
    assert numbers(stream) == [0, 1, 2, 3, 4, 8, 9]


def test_a_batch_has_at_least(stream: Stream, send: Send, spark: SparkSession) -> None:
    """Fewer records than asked for wait for more; those of the first batch do not."""
    send(0, range(4))
    query = stream.start(minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    query.processAllAvailable()
    send(0, range(4, 7))
    send(1, range(7, 14))
    query.processAllAvailable()
    counts = [each["numInputRows"] for each in query.recentProgress]
    query.stop()
    assert [count for count in counts if count] == [4, 10]
    assert numbers(stream) == list(range(14))
