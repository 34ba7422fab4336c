"""How tasks write: Arrow batches into Parquet files, one for each combination of partition values.

A `DataFile` describes each file to the driver, which commits it to the table.
"""

from __future__ import annotations

import io
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import quote, unquote

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.tables.locations import Location

DATE = "date"
"""A partition column of this name, if rows lack it, is the day of ``timestamp`` in UTC."""
STAGING = "_staging"
"""Folder of uncommitted files; readers of a Parquet folder ignore names that begin with an underscore."""
STAGED_SUFFIX = ".part"
"""Readers that list ``**/*.parquet`` do not ignore that folder, so uncommitted files have another suffix."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._=-]")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

_UNLIKE = frozenset(("value", "offset", "timestamp"))
"""Kafka's columns that hardly repeat: a dictionary would be filled, found too large and dropped."""

ROW_GROUP_BYTES = 32 * 1024 * 1024
"""Rows that a task buffers for each open file; larger row groups are not faster to read."""
FILE_BYTES = 512 * 1024 * 1024
"""A larger file is closed, and the next one begun."""
MAX_OPEN_FILES = 32
"""Limit of memory: rows of more partition values make more and smaller files instead."""


def repeating_columns(schema: pa.Schema) -> list[str]:
    """Return the leaf columns of a schema that are worth a dictionary."""
    footer = io.BytesIO()
    pq.write_metadata(schema, footer)
    leaves = pq.read_metadata(footer).schema
    paths = [leaves.column(index).path for index in range(len(leaves))]
    return [path for path in paths if path not in _UNLIKE]


def staged_path(name: str) -> str:
    """Return the path of a file until its batch is committed."""
    return f"{STAGING}/{name}{STAGED_SUFFIX}"


def hive_text(value: Value) -> str:
    """Return a partition value as a part of a path."""
    return _NO_VALUE if value is None else quote(value, safe=" ")


def hive_value(text: str) -> Value:
    """Return the partition value that ``hive_text`` encoded."""
    return None if text == _NO_VALUE else unquote(text)


@attrs.frozen
class Writing:
    """How tasks write the files of a table.

    Attributes:
        location: of the table.
        schema: of its rows.
        partition_by: columns whose values determine the file.
        folder: relative to the location; empty for the location itself.
        keeps_partition_columns: whether the files contain the partition columns, as Iceberg requires.
        is_staged: whether files are written to `STAGING` and moved by the driver.
        has_hive_paths: whether readers take partition values from the folders' names, which then must be
            exact. Otherwise the table's log has the values, and paths have only characters that need no
            escape.
        compression: of Parquet, as pyarrow spells it.
    """

    location: Location
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    folder: str = ""
    keeps_partition_columns: bool = False
    is_staged: bool = False
    has_hive_paths: bool = False
    compression: str = "snappy"

    @property
    def file_schema(self) -> pa.Schema:
        """The schema of the files: without the partition columns, unless they are kept."""
        if self.keeps_partition_columns:
            return self.schema
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with exactly a table's columns: nulls for those it lacks, ``date`` from ``timestamp``.

    Raises:
        KafkaConfigurationError: it has a column that the table lacks.
    """
    if batch.schema.equals(schema):
        return batch
    unknown = [name for name in batch.schema.names if name not in schema.names]
    if unknown:
        raise KafkaConfigurationError(
            f"the table has no column {', '.join(unknown)}: open it with the new schema"
        )
    return pa.RecordBatch.from_arrays([_column(batch, field) for field in schema], schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    names = batch.schema.names
    if field.name in names:
        column = batch.column(field.name)
        return column if column.type.equals(field.type) else column.cast(field.type)
    if field.name == DATE and "timestamp" in names:
        return batch.column("timestamp").cast(pa.date32()).cast(field.type)
    return pa.nulls(batch.num_rows, field.type)


def split(
    batch: pa.RecordBatch, columns: tuple[str, ...]
) -> Iterator[tuple[tuple[Value, ...], pa.RecordBatch]]:
    """Split a batch by the values of its partition columns; a batch with a single combination is not
    copied."""
    if not columns or not batch.num_rows:
        yield (None,) * len(columns), batch
        return
    texts = [batch.column(name).cast(pa.string()) for name in columns]
    found = pa.table(texts, names=list(columns)).group_by(list(columns)).aggregate([]).to_pylist()
    for row in found:
        values = tuple(row[name] for name in columns)
        yield values, batch if len(found) == 1 else batch.filter(_mask(texts, values))


def _mask(texts: list[pa.Array], values: tuple[Value, ...]) -> pa.Array:
    mask = None
    for column, value in zip(texts, values, strict=True):
        here = pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False)
        mask = here if mask is None else pc.and_(mask, here)
    return mask


def write_files(writing: Writing, batches: Iterable[pa.RecordBatch]) -> Iterator[DataFile]:
    """Write all rows, and yield each file when it is complete.

    Calls never share a file, so the leftovers of a failed attempt do no harm; they are removed if possible.

    Args:
        writing: how and where.
        batches: rows of any number of combinations of partition values.

    Raises:
        KafkaConfigurationError: a batch has a column that the table lacks.
    """
    open_files: dict[tuple[Value, ...], _OpenFile] = {}
    try:
        for batch in batches:
            for values, part in split(conform(batch, writing.schema), writing.partition_by):
                if not part.num_rows:
                    continue
                file = open_files.pop(values, None)
                if file is None:
                    if len(open_files) >= MAX_OPEN_FILES:
                        yield open_files.pop(next(iter(open_files))).finish()
                    file = _OpenFile(writing, values)
                open_files[values] = file  # last in order: the first is the least recently used
                file.add(part)
                if file.is_full:
                    yield open_files.pop(values).finish()
        while open_files:
            yield open_files.pop(next(iter(open_files))).finish()
    finally:
        for file in open_files.values():
            file.abandon()


class _OpenFile:
    """A file that is being written, in row groups of `ROW_GROUP_BYTES`."""

    def __init__(self, writing: Writing, values: tuple[Value, ...]) -> None:
        self._writing = writing
        self._partition = tuple(zip(writing.partition_by, values, strict=True))
        self._path = self._final_path()
        self._at = staged_path(self._path.rpartition("/")[2]) if writing.is_staged else self._path
        self._schema = writing.file_schema
        self._sink = writing.location.open_output(self._at)
        self._footers: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._sink,
            self._schema,
            compression=writing.compression,
            use_dictionary=repeating_columns(self._schema),
            metadata_collector=self._footers,
        )
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    def _final_path(self) -> str:
        folders = [f"{name}={hive_text(value)}" for name, value in self._partition]
        if not self._writing.has_hive_paths:
            folders = [_UNSAFE.sub("_", folder) for folder in folders]
        parts = [self._writing.folder, *folders, f"part-{uuid.uuid4().hex}.parquet"]
        return "/".join(filter(None, parts))

    @property
    def is_full(self) -> bool:
        return bool(self._sink.tell() >= FILE_BYTES)

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_columns != len(self._schema):
            batch = batch.select(self._schema.names)
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._waiting, self._schema)
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._waiting, self._waiting_bytes = [], 0

    def finish(self) -> DataFile:
        try:
            if self._waiting:
                self._write_group()
            self._writer.close()
            size_bytes = self._sink.tell()
            self._sink.close()
        except BaseException:
            self.abandon()
            raise
        footer = self._footers[0]
        return DataFile(self._path, size_bytes, footer.num_rows, self._partition, statistics_json(footer))

    def abandon(self) -> None:
        """Close and remove the file. If it cannot be removed, it is a harmless orphan."""
        with suppress(OSError, pa.ArrowException, RuntimeError):  # RuntimeError: the footer is missing
            self._writer.close()
        with suppress(OSError, pa.ArrowException):
            self._sink.close()
        with suppress(OSError):
            self._writing.location.remove(self._at)


Value = str | None
"""A value of a partition column, as Hive and Delta write it in paths."""


@attrs.frozen
class DataFile:
    """A Parquet file that was written, and is not committed yet.

    Attributes:
        path: its final path, relative to the table's folder.
        size_bytes: its length.
        record_count: its number of rows.
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
        """The last part of the path, unique among all attempts."""
        return self.path.rpartition("/")[2]

    def as_json(self) -> dict[str, Any]:
        """Return the entry of the Parquet table's log."""
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
"""The columns in which files travel from tasks to the driver."""

FILES_DDL = "path string, size_bytes bigint, record_count bigint, partition string, statistics string"
"""The same columns as Spark's DDL."""


def files_to_arrow(files: Iterable[DataFile]) -> Iterator[pa.RecordBatch]:
    """Yield an Arrow batch for each file as soon as the file is complete."""
    for file in files:
        row = [file.path, file.size_bytes, file.record_count, json.dumps(file.partition), file.statistics]
        yield pa.RecordBatch.from_arrays(
            [pa.array([value], field.type) for value, field in zip(row, FILES_SCHEMA, strict=True)],
            schema=FILES_SCHEMA,
        )


def files_from_rows(rows: Iterable[Sequence[Any]]) -> list[DataFile]:
    """Return the files of rows that Spark collected."""
    return [
        DataFile(path, size, count, tuple((name, value) for name, value in json.loads(partition)), statistics)
        for path, size, count, partition, statistics in rows
    ]


def statistics_json(metadata: pq.FileMetaData, left_out: Mapping[str, Any] | None = None) -> str:
    """Return a file's statistics in Delta's form, for top-level numbers, dates, times and strings.

    Args:
        metadata: the file's footer.
        left_out: partition columns, for which Delta keeps no statistics.
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
    """Convert a bound for JSON. Delta keeps times in milliseconds, so an upper bound is rounded up."""
    if not isinstance(value, datetime):
        return value.isoformat() if isinstance(value, date) else value
    micros = int((value - _EPOCH).total_seconds() // 1) * 1_000_000 + value.microsecond
    millis = -(-micros // 1000) if is_upper else micros // 1000
    whole = datetime.fromtimestamp(millis // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{millis % 1000:03d}Z"


_LONGEST_TEXTS = 128
"""Characters of a string bound in the log; longer ones cost more than they save."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
