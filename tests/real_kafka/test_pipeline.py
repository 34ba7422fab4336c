"""Topics of a real Kafka as DataFrames, through kafka-local and out of its log directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
from support.kafka.kafka_jars import VERSIONS, KafkaBroker, kafka_broker
from support.kafka.kafka_reading import served
from support.pipeline.connector_kit import LOCAL, Stream, batch, rows, written
from support.pipeline.connector_queries import BATCH, EITHER, Query
from support.pipeline.connector_topics import PARTITIONS, TRIMMED_BELOW, Books, create, filled

from splashdam import KafkaProducer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

EARLIEST = {"startingOffsets": "earliest"}
STREAMS = [each for each in EITHER if each.name in {"headers", "from times", "every codec", "committed"}]


@attrs.frozen
class Running:
    """A broker, and what was sent to it."""

    broker: KafkaBroker
    books: Books


@pytest.fixture(scope="session", autouse=True)
def _kafka_is_there() -> None:
    """Before a session is started in vain."""
    if "KAFKA_JARS" not in os.environ:
        pytest.skip("needs a real Kafka, which `make kafka` fetches")


@pytest.fixture(scope="module", params=VERSIONS)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One for all tests of a version; a transaction is open in it."""
    often = {"log.flush.start.offset.checkpoint.interval.ms": "100"}
    with (
        kafka_broker(request.param, tmp_path_factory.mktemp("kafka"), often) as broker,
        filled(broker.bootstrap_servers) as books,
    ):
        yield Running(broker, books)


@pytest.mark.parametrize("query", BATCH, ids=str)
def test_batch(spark: SparkSession, running: Running, query: Query) -> None:
    """Every option that the embedded broker serves."""
    found = batch(spark, LOCAL, running.books.servers, query.options)
    assert rows(found) == running.books.where(query.wanted, "headers" in found.columns)


@pytest.mark.parametrize("query", STREAMS, ids=str)
def test_stream(spark: SparkSession, running: Running, tmp_path: Path, query: Query) -> None:
    """In micro-batches."""
    stream = Stream(spark, tmp_path, LOCAL, running.books.servers, {**EARLIEST, **query.options})
    stream.run(maxOffsetsPerTrigger="20")
    assert stream.rows() == running.books.where(query.wanted, "includeHeaders" in query.options)


def test_stream_goes_on(spark: SparkSession, running: Running, tmp_path: Path) -> None:
    """From its checkpoint: nothing twice, nothing left out."""
    servers = running.books.servers
    create(servers, {"growing": 2})
    stream = Stream(spark, tmp_path, LOCAL, servers, {"subscribe": "growing", **EARLIEST})
    with KafkaProducer(bootstrap_servers=servers) as producer:
        for first in (0, 5):
            for number in range(first, first + 5):
                producer.send("growing", b"%d" % number, partition=number % 2)
            producer.flush()
            assert sum(stream.run()) == 5
    assert sorted(int(each.value or b"-1") for each in stream.rows()) == list(range(10))


@pytest.mark.parametrize("delivery", ["at_least_once", "dedup", "exactly_once"])
def test_sink(spark: SparkSession, running: Running, delivery: str) -> None:
    """A frame goes into a topic, and read_committed consumers see it."""
    servers, topic = running.books.servers, f"sink-{delivery}"
    create(servers, {topic: 1})
    frame = spark.range(100).selectExpr("CAST(id AS string) AS key", "CAST(id AS string) AS value")
    writer = frame.write.format(LOCAL).mode("append").option("kafka.bootstrap.servers", servers)
    writer.option("topic", topic).option("delivery", delivery).save()
    found = [int(each.value or b"-1") for each in served(servers, topic, committed=True)]
    assert sorted(found) == list(range(100))


def test_exactly_once_stream(spark: SparkSession, running: Running, tmp_path: Path) -> None:
    """A topic copied batch by batch, in transactions."""
    servers, books = running.books.servers, running.books
    create(servers, {"copy": 1})
    stream = Stream(spark, tmp_path, LOCAL, servers, {"subscribe": "plain", **EARLIEST})
    stream.run_into(LOCAL, "copy", delivery="exactly_once")
    read = {"subscribe": "copy", "kafka.isolation.level": "read_committed"}
    found = written(batch(spark, LOCAL, servers, read))
    sent = [(each.key, each.value) for each in books.where(lambda each: each.topic == "plain")]
    assert sorted(map(repr, ((key, value) for _, key, value, _ in found))) == sorted(map(repr, sent))


@pytest.mark.parametrize("topic", sorted(PARTITIONS))
@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_directory(spark: SparkSession, running: Running, topic: str, level: str) -> None:
    """Kafka's segment files, while the broker runs: what is open there is not committed either.

    Where a log begins is read from the disk, which hears of DeleteRecords later (docs/reference/pipeline.md).
    """
    running.broker.wait_log_start_on_disk("trimmed-0", TRIMMED_BELOW)
    reader = spark.read.format("kafka-log").option("subscribe", topic).option("includeHeaders", "true")
    found = reader.option("kafka.isolation.level", level).load(str(running.broker.data))
    is_wanted = level == "read_uncommitted"
    assert rows(found) == running.books.where(
        lambda each: each.topic == topic and (is_wanted or each.committed), headers=True
    )
