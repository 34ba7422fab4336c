"""Topics into tables: tasks without a JVM, then whole queries, killed between the two commits."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.pipeline.tables_kit import offsets_of

from splashdam import EmbeddedBroker, KafkaProducer
from splashdam.pipeline.options import to_text
from splashdam.pipeline.schema import all_columns
from splashdam.pipeline.tables import existing_table, open_table
from splashdam.pipeline.tables.writing import files_from_rows

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from splashdam.pipeline.jobs.ingest import IngestSource, Target, ingest
from splashdam.pipeline.tables.streaming import WRITING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def send(broker: EmbeddedBroker, topic: str, numbers: range) -> None:
    """Numbers as values."""
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_many(topic, [b"%d" % number for number in numbers])
        producer.flush()


def source(broker: EmbeddedBroker, topic: str, **more: str) -> Mapping[str, str]:
    """Options of the source."""
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, **more}


def test_a_task_writes_its_files(kafka_broker: EmbeddedBroker, kafka_topic: str, tmp_path: Path) -> None:
    """Trap 20: two attempts of it write two files; the table has the one that it is told of."""
    send(kafka_broker, kafka_topic, range(1000))
    table = open_table("parquet", tmp_path / "table", schema=all_columns(False).arrow, partition_by=["date"])
    given: dict[str, Any] = {
        **source(kafka_broker, kafka_topic, startingOffsets="earliest"),
        WRITING: to_text(table.writing()),
    }
    reader = IngestSource(given).streamReader(None)
    start = reader.initialOffset()
    (partition,) = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    attempts = [
        files_from_rows(row.values() for batch in worker.read(partition) for row in batch.to_pylist())
        for worker in (pickle.loads(pickle.dumps(reader)) for _ in range(2))
    ]
    assert [file.record_count for files in attempts for file in files] == [1000, 1000]
    table.commit("q", 0, attempts[1])
    assert offsets_of(table) == list(range(1000))
    assert [Path(file.path).name for file in table.orphans(1 << 60)] == [f"{attempts[0][0].name}.part"]


@pytest.mark.spark
def test_a_driver_that_dies_between_the_commits(
    spark: SparkSession, kafka_broker: EmbeddedBroker, kafka_topic: str, tmp_path: Path
) -> None:
    """Trap 19: the batch is in the table and not in the checkpoint; the next start finds it and goes on."""
    pytest.importorskip("deltalake", reason="needs splashdam[delta]")
    send(kafka_broker, kafka_topic, range(1000))
    target = Target(table_format="delta", place=tmp_path / "table", partition_by=["topic"])
    checkpoint = tmp_path / "checkpoint"
    options = source(kafka_broker, kafka_topic)
    assert ingest(spark, options, target, checkpoint=checkpoint).records == 1000
    (checkpoint / "commits/0").unlink()
    (checkpoint / "commits/.0.crc").unlink(missing_ok=True)
    send(kafka_broker, kafka_topic, range(1000, 1500))
    report = ingest(spark, options, target, checkpoint=checkpoint)
    assert (report.batches_found, report.records) == (1, 500)
    table = existing_table("delta", tmp_path / "table")
    assert offsets_of(table) == list(range(1500))
    table.close()


@pytest.mark.spark
def test_a_transformation(
    spark: SparkSession, kafka_broker: EmbeddedBroker, kafka_topic: str, tmp_path: Path
) -> None:
    """Trap 24: any DataFrame function makes the rows, and none of it needs pandas."""
    send(kafka_broker, kafka_topic, range(100))

    def even(records: DataFrame) -> DataFrame:
        numbers = records.selectExpr("CAST(CAST(value AS string) AS int) AS number", "offset", "timestamp")
        return numbers.where("number % 2 = 0")

    target = Target(table_format="parquet", place=tmp_path / "table", partition_by=["date"])
    options = source(kafka_broker, kafka_topic)
    report = ingest(spark, options, target, checkpoint=tmp_path / "checkpoint", transform=even)
    table = existing_table("parquet", tmp_path / "table")
    assert table.schema.names == ["number", "offset", "timestamp", "date"]
    assert (report.records, offsets_of(table)) == (50, list(range(0, 100, 2)))
