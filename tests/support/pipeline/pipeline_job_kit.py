"""What the tests of jobs have in common: rows with Kafka's columns, streams of them, outputs that fail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from splashdam.pipeline.schema import all_columns, ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL_BROKER = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = all_columns(include_headers=True)


@attrs.frozen
class Row:
    """A record, as a test writes it."""

    value: bytes | None
    key: bytes | None = None
    second: float = 0
    headers: list[dict[str, Any]] | None = None
    partition: int = 0


def kafka_rows(rows: Iterable[Row], first_offset: int = 0) -> pa.Table:
    """Rows with Kafka's columns; offsets count through all partitions, which no reader minds."""
    return pa.Table.from_pylist(
        [
            {
                "key": row.key,
                "value": row.value,
                "topic": "t",
                "partition": row.partition,
                "offset": first_offset + index,
                "timestamp": EPOCH + timedelta(seconds=row.second),
                "timestampType": 0,
                "headers": row.headers,
            }
            for index, row in enumerate(rows)
        ],
        COLUMNS.arrow,
    )


class Source:
    """A folder whose files are micro-batches of a stream, in the order in which they were added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._added = 0
        self._offset = 0
        folder.mkdir()

    def add(self, rows: Sequence[Row]) -> None:
        """One micro-batch."""
        path = self.folder / f"{self._added:04}.parquet"
        pq.write_table(kafka_rows(rows, self._offset), path)
        stamp = 1_700_000_000 + self._added  # Spark takes the oldest file first
        import os

        os.utime(path, (stamp, stamp))
        self._added += 1
        self._offset += len(rows)

    def stream(self, spark: SparkSession) -> DataFrame:
        """One file at a time."""
        reader = spark.readStream.schema(ddl(COLUMNS)).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder))

    def batch(self, spark: SparkSession) -> DataFrame:
        """All files."""
        return spark.read.schema(ddl(COLUMNS)).parquet(str(self.folder))


class DiedError(Exception):
    """The driver's, in a test."""


@attrs.define
class Mortal:
    """An output whose driver dies after a batch was committed, the first time.

    Attributes:
        inner: the real one.
        dies_at: batch number.
    """

    inner: Any
    dies_at: int

    @property
    def takes_records(self) -> bool:
        """As the real one."""
        return bool(self.inner.takes_records)

    def write(self, rows: DataFrame, query: str, batch: int) -> None:
        """Commits, then dies."""
        self.inner.write(rows, query, batch)
        if batch == self.dies_at:
            self.dies_at = -1
            raise DiedError(f"after batch {batch}")


def table_rows(place: Path) -> list[dict[str, Any]]:
    """All rows of a Parquet table of ours; none where there is no table."""
    from splashdam.pipeline.tables.opening import existing_table
    from splashdam.pipeline.tables.table import TableMissingError

    try:
        table = existing_table("parquet", place)
    except TableMissingError:
        return []
    return [row for batch in table.iter_rows() for row in batch.to_pylist()]
