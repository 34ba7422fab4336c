"""``mode=batches``: a row for each record batch of a slice, as Arrow batches. No record is decoded.

Columns are made one by one from the headers, without an object for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import attrs

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import MAX_LONG, nearest_name
from splashdam.model.values import TopicPartition
from splashdam.pipeline.log_source.slices import LogSlice, ReadingRules, parts_of
from splashdam.pipeline.log_source.walking import Chunk, Damage
from splashdam.record.aborted_transactions import control_type
from splashdam.record.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LENGTH_END,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_CODECS = tuple(
    Codec(number).name.lower() if number <= Codec.ZSTD else f"unknown ({number})"
    for number in range(CODEC_MASK + 1)
)
_LATEST_MS = MAX_LONG // 1000

Column = Sequence[object]


def _times(all_ms: Iterable[int]) -> Column:
    """Convert to microseconds. Timestamps beyond their range are clamped, as in records."""
    return [None if ms < 0 else min(ms, _LATEST_MS) * 1000 for ms in all_ms]


_OF_HEADERS: Mapping[str, Callable[[Sequence[BatchHeader]], Column]] = {
    "sizeInBytes": lambda headers: [each.batch_length + LENGTH_END for each in headers],
    "baseOffset": lambda headers: [each.base_offset for each in headers],
    "lastOffset": lambda headers: [each.base_offset + each.last_offset_delta for each in headers],
    "recordCount": lambda headers: [
        each.record_count if each.record_count >= 0 or each.magic == MAGIC else None for each in headers
    ],
    "magic": lambda headers: [each.magic for each in headers],
    "compression": lambda headers: [_CODECS[each.attributes & CODEC_MASK] for each in headers],
    "timestampType": lambda headers: [
        int(each.attributes & LOG_APPEND_TIME_BIT > 0) if each.magic else None for each in headers
    ],
    "baseTimestamp": lambda headers: _times(
        -1 if each.attributes & DELETE_HORIZON_BIT else each.base_timestamp for each in headers
    ),
    "maxTimestamp": lambda headers: _times(each.max_timestamp for each in headers),
    "partitionLeaderEpoch": lambda headers: [
        each.partition_leader_epoch if each.magic == MAGIC else None for each in headers
    ],
    "producerId": lambda headers: [each.producer_id if each.magic == MAGIC else None for each in headers],
    "producerEpoch": lambda headers: [
        each.producer_epoch if each.magic == MAGIC else None for each in headers
    ],
    "baseSequence": lambda headers: [each.base_sequence if each.magic == MAGIC else None for each in headers],
    "lastSequence": lambda headers: [each.last_sequence if each.magic == MAGIC else None for each in headers],
    "isTransactional": lambda headers: [each.attributes & TRANSACTIONAL_BIT > 0 for each in headers],
    "isControl": lambda headers: [each.attributes & CONTROL_BIT > 0 for each in headers],
    "deleteHorizon": lambda headers: _times(
        each.base_timestamp if each.attributes & DELETE_HORIZON_BIT else -1 for each in headers
    ),
    "crc": lambda headers: [each.crc for each in headers],
}
"""The columns that come from headers. A column that a message format does not have is null."""


@attrs.define
class BatchTable:
    """Sound batches of a partition.

    Attributes:
        where: the partition.
        is_checked: whether their checksums were checked.
        segments: the base offsets of their segments.
        positions: where the batches begin there.
        headers: of the batches.
        kinds: types of control batches, None for the others.
    """

    where: TopicPartition
    is_checked: bool
    segments: list[int] = attrs.field(factory=list)
    positions: list[int] = attrs.field(factory=list)
    headers: list[BatchHeader] = attrs.field(factory=list)
    kinds: list[str | None] = attrs.field(factory=list)

    def arrow(self, schema: pa.Schema) -> pa.RecordBatch:
        rows = len(self.headers)
        return _arrow(
            schema,
            rows,
            self.headers,
            {
                "topic": [self.where.topic] * rows,
                "partition": [self.where.partition] * rows,
                "segment": self.segments,
                "position": self.positions,
                "controlType": self.kinds,
                "crcValid": [True if self.is_checked else None] * rows,
            },
        )


def damage_row(where: TopicPartition, segment: int, damage: Damage, schema: pa.Schema) -> pa.RecordBatch:
    """Return damage as one row: position, size, problem, and the header's columns if it can be read."""
    values: dict[str, Column] = {
        "topic": [where.topic],
        "partition": [where.partition],
        "segment": [segment],
        "position": [damage.position],
        "sizeInBytes": [damage.size_bytes],
        "problem": [f"torn end: {damage.reason}" if damage.is_tail else damage.reason],
    }
    if damage.header is None:
        return _arrow(schema, 1, None, values)
    return _arrow(schema, 1, [damage.header], {**values, "crcValid": [False]})


def _arrow(
    schema: pa.Schema, rows: int, headers: Sequence[BatchHeader] | None, values: Mapping[str, Column]
) -> pa.RecordBatch:
    import pyarrow as pa

    def column(name: str) -> Column:
        if name in values:
            return values[name]
        make = None if headers is None else _OF_HEADERS.get(name)
        return [None] * rows if make is None or headers is None else make(headers)

    arrays = [pa.array(column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_TYPES: Mapping[str, str] = {
    "topic": "string",
    "partition": "int",
    "segment": "bigint",
    "position": "bigint",
    "sizeInBytes": "bigint",
    "baseOffset": "bigint",
    "lastOffset": "bigint",
    "recordCount": "int",
    "magic": "int",
    "compression": "string",
    "timestampType": "int",
    "baseTimestamp": "timestamp",
    "maxTimestamp": "timestamp",
    "partitionLeaderEpoch": "int",
    "producerId": "bigint",
    "producerEpoch": "int",
    "baseSequence": "int",
    "lastSequence": "int",
    "isTransactional": "boolean",
    "isControl": "boolean",
    "controlType": "string",
    "deleteHorizon": "timestamp",
    "crc": "bigint",
    "crcValid": "boolean",
    "problem": "string",
}
"""Columns and their types, as Spark names them."""

_CONTROL_TYPES = ("ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION",
                  "KRAFT_VOTERS")  # fmt: skip
_ROWS = 16 * 1024  # 3 MiB at most


def batch_ddl() -> str:
    """Return the columns in the DDL that ``DataSource.schema()`` returns."""
    return ", ".join(f"`{name}` {kind}" for name, kind in _TYPES.items())


def batch_columns(schema: StructType) -> tuple[str, ...]:
    """Return the columns of a schema.

    Raises:
        KafkaConfigurationError: a column is unknown or of another type, or there is none.
    """
    if not schema.fields:
        raise KafkaConfigurationError(f"the schema is empty; the columns are {', '.join(_TYPES)}")
    for field in schema.fields:
        kind = _TYPES.get(field.name)
        if kind is None:
            close = nearest_name(field.name, _TYPES)
            raise KafkaConfigurationError(f"mode=batches has no column {field.name!r}.{close}")
        if field.dataType.simpleString() != kind or not field.nullable:
            raise KafkaConfigurationError(f"column {field.name!r} is {kind}, and may be null")
    return tuple(field.name for field in schema.fields)


def read_batches(whole: LogSlice, columns: tuple[str, ...], rules: ReadingRules) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a slice; damage that is not an error is a row with ``problem``.

    Raises:
        KafkaStorageError: a file cannot be read.
        CorruptMessageError: there is damage, and the rules make it an error.
    """
    schema = arrow_schema(columns)
    table = BatchTable(whole.where, rules.check_crcs)
    for part in parts_of(whole, rules):
        segment, found = part.piece.segment.base_offset, part.found
        if isinstance(found, Chunk):
            _take(table, found, segment, whole)
        if table.headers and (isinstance(found, Damage) or len(table.headers) >= _ROWS):
            yield table.arrow(schema)
            table = BatchTable(whole.where, rules.check_crcs)
        if isinstance(found, Damage) and not found.is_zeros:
            yield damage_row(whole.where, segment, found, schema)
    if table.headers:
        yield table.arrow(schema)


def _take(table: BatchTable, chunk: Chunk, segment: int, whole: LogSlice) -> None:
    first, end = whole.first_offset, whole.end_offset
    for at, header in chunk.batches:
        is_beyond = header.base_offset >= end and header.magic == MAGIC
        if not is_beyond and header.base_offset + header.last_offset_delta >= first:
            table.segments.append(segment)
            table.positions.append(chunk.position + at)
            table.headers.append(header)
            table.kinds.append(_control(chunk, at) if header.attributes & CONTROL_BIT else None)


def _control(chunk: Chunk, at: int) -> str | None:
    try:
        kind = control_type(chunk.data, at)
    except CorruptMessageError:  # the record is malformed although the checksum is right
        return None
    if kind is None or not 0 <= kind < len(_CONTROL_TYPES):
        return None
    return _CONTROL_TYPES[kind]


@cache
def arrow_schema(names: tuple[str, ...]) -> pa.Schema:
    """Return the Arrow schema that Spark expects of a source with these columns."""
    import pyarrow as pa

    kinds = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    return pa.schema([pa.field(name, kinds[_TYPES[name]]) for name in names])
