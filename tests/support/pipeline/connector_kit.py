"""Spark's own Kafka connector beside ours: how either is asked, and what it gave as the books have it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.pipeline.connector_topics import Headers, Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

LOCAL = "kafka-local"
FORMATS = ("kafka", LOCAL)
_COLUMNS = (
    "topic",
    "partition",
    "offset",
    "key",
    "value",
    "unix_millis(timestamp) AS timestamp_ms",
    "timestampType",
)


def batch(spark: SparkSession, word: str, servers: str, options: Mapping[str, str]) -> DataFrame:
    """A batch through one of the formats."""
    return spark.read.format(word).option("kafka.bootstrap.servers", servers).options(**options).load()


def rows(frame: DataFrame) -> list[Record]:
    """What a frame holds, in order of topic, partition and offset; all times are those of the senders."""
    has_headers = "headers" in frame.columns
    collected = frame.selectExpr(*_COLUMNS, *(["headers"] if has_headers else [])).collect()
    assert {each.timestampType for each in collected} <= {0}
    return sorted(_record(each, has_headers) for each in collected)


def written(frame: DataFrame) -> list[tuple[int, bytes | None, bytes | None, Headers]]:
    """Partition, key, value and headers, in the order of the offsets of each partition."""
    return [(each.partition, each.key, each.value, each.headers) for each in rows(frame)]


def _record(row: Any, has_headers: bool) -> Record:
    headers = [(each.key, _bytes(each.value)) for each in (row.headers or ())] if has_headers else []
    assert not has_headers or row.headers is None or headers  # null where there are none, as Spark's has it
    return Record(
        row.topic,
        row.partition,
        row.offset,
        _bytes(row.key),
        _bytes(row.value),
        row.timestamp_ms,
        tuple(headers),
    )


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


class Stream:
    """A query from a source into files, which can go on where it ended.

    Args:
        spark: the session.
        home: a directory of its own, for files and checkpoint.
        word: of the format.
        servers: of the cluster.
        options: of the source.
    """

    def __init__(
        self, spark: SparkSession, home: Path, word: str, servers: str, options: Mapping[str, str]
    ) -> None:
        self._spark = spark
        self._word = word
        self._options = {"kafka.bootstrap.servers": servers, **options}
        self._files, self._checkpoint = home / "files", home / "checkpoint"
        if word == LOCAL:  # Spark's own finds its checkpoint, ours is not told of it
            self._options["initialOffsetsLocation"] = str(home / "initial")

    def run(self, **options: str) -> list[int]:
        """Reads what there is and ends; the records of each batch that had some."""
        query = self._writer(options).trigger(availableNow=True).start()
        query.awaitTermination()
        counts = [each["numInputRows"] for each in query.recentProgress]
        return [count for count in counts if count]

    def run_into(self, word: str, topic: str, **options: str) -> None:
        """Writes what there is to a topic, and ends."""
        frame = self._source({}).select("key", "value")
        query = (
            frame.writeStream.format(word)
            .option("kafka.bootstrap.servers", self._options["kafka.bootstrap.servers"])
            .option("topic", topic)
            .options(**options)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def start(self, **options: str) -> StreamingQuery:
        """A query that goes on until it is stopped."""
        return self._writer(options).start()

    def _writer(self, options: Mapping[str, str]) -> DataStreamWriter:
        files = self._source(options).writeStream.format("parquet").option("path", str(self._files))
        return files.option("checkpointLocation", str(self._checkpoint))

    def _source(self, options: Mapping[str, str]) -> DataFrame:
        return self._spark.readStream.format(self._word).options(**{**self._options, **options}).load()

    def rows(self) -> list[Record]:
        """All that was written so far."""
        return rows(self._spark.read.parquet(str(self._files)))

    def ends(self) -> list[dict[str, dict[str, int]]]:
        """The end offsets of the batches, as the checkpoint has them."""
        logged = sorted((self._checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        return [json.loads(path.read_text().splitlines()[-1]) for path in logged]
