"""Streams of text files into a topic, exactly once, and a sink whose task dies on the way."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from splashdam.pipeline.sink.writers import SinkMessage, StreamWriter, stream_writer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_WAIT_SECONDS = 120


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


def send_files(spark: SparkSession, home: Path, sink: str, servers: str, topic: str) -> None:
    """A stream that writes what there is in the files of ``home``, goes on from its checkpoint, and ends."""
    lines = spark.readStream.schema("value string").text(str(home / "in"))
    (
        lines.writeStream.format(sink)
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic)
        .option("delivery", "exactly_once")
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination(_WAIT_SECONDS)
    )


def forget_commits(home: Path) -> None:
    """As if the driver had died after its last batch, before it wrote that to the checkpoint."""
    for left in (home / "checkpoint" / "commits").iterdir():
        left.unlink()


def add_file(home: Path, first: int, count: int) -> None:
    """One more batch of rows."""
    (home / "in").mkdir(exist_ok=True)
    text = "".join(f"{number}\n" for number in range(first, first + count))
    (home / "in" / f"{first}.txt").write_text(text)
