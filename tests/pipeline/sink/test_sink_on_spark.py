"""The sink under Spark itself: jobs, streams, tasks that fail or are killed, queries that restart."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from pipeline_sink_kit import read
from pyspark.sql.datasource import DataSource

from splashdam import EmbeddedBroker
from splashdam.pipeline.local_source.options import NAME
from splashdam.pipeline.sink.writers import SinkMessage, StreamWriter, stream_writer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 400


def values(broker: EmbeddedBroker, topic: str) -> Counter[bytes]:
    """What readers of committed records see."""
    return Counter(bytes(each.value) for each in read(broker.bootstrap_servers, topic))


def once(count: int = ROWS) -> Counter[bytes]:
    """Each row one time."""
    return Counter(b"%d" % number for number in range(count))


def numbers(spark: SparkSession, count: int = ROWS) -> DataFrame:
    """Rows of two partitions."""
    return spark.range(0, count, 1, 2).selectExpr("cast(id as string) as value")


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_batch_job(spark: SparkSession, kafka_broker: EmbeddedBroker, delivery: str) -> None:
    """Every row is there once; a mode that would overwrite is refused with what to do."""
    writer = (
        numbers(spark)
        .write.format(NAME)
        .option("kafka.bootstrap.servers", kafka_broker.bootstrap_servers)
        .option("topic", "t")
        .option("delivery", delivery)
    )
    writer.mode("append").save()
    assert values(kafka_broker, "t") == once()
    with pytest.raises(Exception, match=r"overwrite.*is refused"):
        writer.mode("overwrite").save()


def deadly(spark: SparkSession, marker: Path, how: str) -> str:
    """A format whose first task sends half of its rows, and fails or is killed.

    Workers cannot import tests: all of it stands in here, so that it travels by value.
    """

    def dies_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, batch.num_rows // 2)
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                if how == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise ValueError("this task fails once")
            yield batch.slice(batch.num_rows // 2)

    class Dying(StreamWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkMessage:
            return StreamWriter.write(self, dies_once(iterator))

    class Deadly(DataSource):
        @classmethod
        def name(cls) -> str:
            return f"kafka-sink-{how}"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            writer = stream_writer(schema, self.options, overwrite)
            return Dying(writer._options, writer._columns)

    spark.dataSource.register(Deadly)
    return Deadly.name()


def start(frame: DataFrame, sink: str, broker: EmbeddedBroker, checkpoint: Path) -> Any:
    """A stream into the topic that takes what there is."""
    return (
        frame.writeStream.format(sink)
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("topic", "t")
        .option("delivery", "exactly_once")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def files(spark: SparkSession, directory: Path) -> DataFrame:
    """A stream of text files."""
    return spark.readStream.schema("value string").text(str(directory))


def add_file(directory: Path, first: int, count: int) -> None:
    """One more batch of rows."""
    directory.mkdir(exist_ok=True)
    text = "".join(f"{number}\n" for number in range(first, first + count))
    (directory / f"{first}.txt").write_text(text)


@pytest.mark.parametrize("how", ["fails", "killed"])
def test_a_task_is_lost(spark: SparkSession, kafka_broker: EmbeddedBroker, tmp_path: Path, how: str) -> None:
    """Trap 21: with two cores and four attempts it runs again; what the lost attempt sent is never seen."""
    add_file(tmp_path / "in", 0, ROWS)
    sink = deadly(spark, tmp_path / "done", how)
    start(files(spark, tmp_path / "in"), sink, kafka_broker, tmp_path / "checkpoint").awaitTermination(120)
    assert (tmp_path / "done").exists()
    assert values(kafka_broker, "t") == once()


def test_the_driver_dies_between_the_commit_and_the_checkpoint(
    spark: SparkSession, kafka_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Spark writes the batch again; it is known, nothing is written, and the query goes on."""
    add_file(tmp_path / "in", 0, ROWS // 2)
    start(files(spark, tmp_path / "in"), NAME, kafka_broker, tmp_path / "checkpoint").awaitTermination(120)
    for left in (tmp_path / "checkpoint" / "commits").iterdir():
        left.unlink()  # as if it had died before it wrote this
    add_file(tmp_path / "in", ROWS // 2, ROWS // 2)
    start(files(spark, tmp_path / "in"), NAME, kafka_broker, tmp_path / "checkpoint").awaitTermination(120)
    assert values(kafka_broker, "t") == once()


def test_duplicates_are_dropped(spark: SparkSession) -> None:
    """Records of one row are one; records without the headers are left alone. Of rows that came from such a
    topic and were written to another one, the first topic's headers counted, and made different rows one."""
    from splashdam.pipeline.sink.duplicates import drop_duplicates

    row = "array({})"
    header = "named_struct('key', 'splashdam.{}', 'value', cast('{}' as binary))"

    def named(*numbers: int) -> str:
        texts = {"query": "q", "batch": 3, "partition": 0}
        each = [header.format(*pair) for number in numbers for pair in [*texts.items(), ("row", number)]]
        return row.format(", ".join(each))

    lines = [named(0), named(1), named(0), "null", "null", named(0, 7), named(0, 8), named(0, 8)]
    query = " union all ".join(
        f"select 't' as topic, 0 as partition, {offset}L as offset, {headers} as headers"
        for offset, headers in enumerate(lines)
    )
    kept = drop_duplicates(spark.sql(query))
    assert kept.columns == ["topic", "partition", "offset", "headers"]
    assert kept.count() == 6
