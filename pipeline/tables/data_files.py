"""What a task says of a file that it wrote: what travels from tasks to the driver, through Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

Value = str | None
"""Of a partition column, as Hive and Delta write it in paths."""


@attrs.frozen
class DataFile:
    """One Parquet file that was written, and is in no table yet.

    Attributes:
        path: where it shall be, below the table's folder.
        size_bytes: its length.
        record_count: how many rows it has.
        partition: value of each partition column, as text.
        statistics: JSON as in Delta's log: smallest and largest values, and numbers of nulls.
    """

    path: str
    size_bytes: int
    record_count: int
    partition: tuple[tuple[str, Value], ...] = ()
    statistics: str = "{}"

    @property
    def name(self) -> str:
        """The last part of the path, which no other attempt shares."""
        return self.path.rpartition("/")[2]

    def as_json(self) -> dict[str, Any]:
        """For a log."""
        return {"path": self.path, "size": self.size_bytes, "records": self.record_count}


FILES_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("size_bytes", pa.int64()),
        ("record_count", pa.int64()),
        ("partition", pa.string()),
        ("statistics", pa.string()),
    ]
)
"""How files travel from the tasks to the driver."""

FILES_DDL = "path string, size_bytes bigint, record_count bigint, partition string, statistics string"
"""The same in Spark's words."""


def files_to_arrow(files: Iterable[DataFile]) -> Iterator[pa.RecordBatch]:
    """A batch for each file, so that the driver hears of it as soon as it is whole."""
    for file in files:
        row = [file.path, file.size_bytes, file.record_count, json.dumps(file.partition), file.statistics]
        yield pa.RecordBatch.from_arrays(
            [pa.array([value], field.type) for value, field in zip(row, FILES_SCHEMA, strict=True)],
            schema=FILES_SCHEMA,
        )


def files_from_rows(rows: Iterable[Sequence[Any]]) -> list[DataFile]:
    """Of rows that Spark collected."""
    return [
        DataFile(path, size, count, tuple((name, value) for name, value in json.loads(partition)), statistics)
        for path, size, count, partition, statistics in rows
    ]


def statistics_json(metadata: pq.FileMetaData, left_out: Mapping[str, Any] | None = None) -> str:
    """Statistics of a file in Delta's form: of numbers, dates, times and texts at the top level.

    Args:
        metadata: the file's footer.
        left_out: partition columns, of which Delta keeps none.
    """
    smallest: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(metadata.num_columns):
        column = metadata.schema.column(index)
        if "." in column.path or column.path in (left_out or {}):
            continue
        chunks = [
            metadata.row_group(group).column(index).statistics for group in range(metadata.num_row_groups)
        ]
        if any(chunk is None or not chunk.has_null_count for chunk in chunks):
            continue
        nulls[column.path] = sum(chunk.null_count for chunk in chunks)
        bounded = [chunk for chunk in chunks if chunk.has_min_max]
        if not bounded or len(bounded) + _all_null(chunks) < len(chunks):
            continue
        low, high = min(chunk.min for chunk in bounded), max(chunk.max for chunk in bounded)
        if isinstance(low, bool | int | date) or (
            isinstance(high, str) and len(low + high) <= _LONGEST_TEXTS
        ):
            smallest[column.path], largest[column.path] = _plain(low), _plain(high, is_upper=True)
    counted = {"numRecords": metadata.num_rows}
    return json.dumps({**counted, "minValues": smallest, "maxValues": largest, "nullCount": nulls})


def _all_null(chunks: Sequence[Any]) -> int:
    return sum(1 for chunk in chunks if not chunk.has_min_max and chunk.num_values == 0)


def _plain(value: Any, *, is_upper: bool = False) -> Any:
    """Delta keeps milliseconds of a time, so that a largest one has to be rounded up."""
    if not isinstance(value, datetime):
        return value.isoformat() if isinstance(value, date) else value
    micros = int((value - _EPOCH).total_seconds() // 1) * 1_000_000 + value.microsecond
    millis = -(-micros // 1000) if is_upper else micros // 1000
    whole = datetime.fromtimestamp(millis // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{millis % 1000:03d}Z"


_LONGEST_TEXTS = 128
"""Of bounds in the log; longer ones would make it larger than they are worth."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
