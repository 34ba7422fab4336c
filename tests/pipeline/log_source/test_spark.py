"""``kafka-log`` inside Spark: the same rows as ``kafka-local``, batches, filters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CODECS = (None, "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedBroker, Path]]:
    """A running broker with 500 records of every codec, and two transactions, one of them aborted."""
    directory = tmp_path_factory.mktemp("kafka-log")
    with EmbeddedBroker(directory, port=0) as running:
        servers = running.bootstrap_servers
        for codec in CODECS:
            with KafkaProducer(bootstrap_servers=servers, compression_type=codec) as producer:
                for n in range(100):
                    producer.send("t", key=b"%d" % n, value=b"v" * n, headers=[("n", b"%d" % n)])
        with KafkaProducer(bootstrap_servers=servers, transactional_id="x") as producer:
            producer.init_transactions()
            for ends in (producer.commit_transaction, producer.abort_transaction):
                producer.begin_transaction()
                producer.send("t", value=ends.__name__.encode())
                producer.flush()
                ends()
        yield running, directory


def test_rows_are_those_of_kafka_local(spark: SparkSession, broker: tuple[EmbeddedBroker, Path]) -> None:
    """One changed word, and the address; the broker is running."""
    running, directory = broker
    common = {"subscribe": "t", "includeHeaders": "true"}
    for isolation, count in (("read_uncommitted", 502), ("read_committed", 501)):
        options = {**common, "kafka.isolation.level": isolation}
        over_the_wire = (
            spark.read.format("kafka-local")
            .options(**options)
            .option("kafka.bootstrap.servers", running.bootstrap_servers)
            .load()
        )
        from_files = (
            spark.read.format("kafka-log").options(**options, maxPartitionBytes="4k").load(str(directory))
        )
        assert from_files.schema == over_the_wire.schema
        found = from_files.orderBy("partition", "offset").collect()
        assert found == over_the_wire.orderBy("partition", "offset").collect()
        assert len(found) == count


def test_batches_are_counted_with_sql(spark: SparkSession, broker: tuple[EmbeddedBroker, Path]) -> None:
    """Which codecs, how many records, what became of transactions."""
    directory = broker[1]
    spark.read.format("kafka-log").option("mode", "batches").load(str(directory / "t-0")).createTempView("b")
    try:
        counts = spark.sql(
            "select compression, sum(recordCount) n, bool_and(crcValid) valid from b where not isControl"
            " group by compression"
        ).collect()
        kinds = spark.sql("select controlType from b where isControl order by baseOffset").collect()
    finally:
        spark.catalog.dropTempView("b")
    assert {row.compression: row.n for row in counts} == {
        "none": 102,
        **dict.fromkeys(("gzip", "snappy", "lz4", "zstd"), 100),
    }
    assert all(row.valid for row in counts)
    assert [row.controlType for row in kinds] == ["COMMIT", "ABORT"]


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_rows_are_the_same_with_pushdown_and_without(
    spark: SparkSession, broker: tuple[EmbeddedBroker, Path], pushdown: str
) -> None:
    """Traps 3 and 4: filters come or they do not."""
    name = "spark.sql.python.filterPushdown.enabled"
    before: Any = spark.conf.get(name)
    spark.conf.set(name, pushdown)
    try:
        frame = spark.read.format("kafka-log").load(str(broker[1]))
        found = frame.where("topic = 't' and offset >= 450 and offset < 460").select("offset").collect()
    finally:
        spark.conf.set(name, before)
    assert sorted(row.offset for row in found) == list(range(450, 460))
