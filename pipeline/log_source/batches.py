"""The batches of a slice as Arrow, a row for each, of ``mode=batches``: no record is decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import MAX_LONG, nearest_name
from splashdam.model.values import TopicPartition
from splashdam.pipeline.log_source.reading import Part, ReadingRules, parts_of
from splashdam.pipeline.log_source.slices import LogSlice
from splashdam.pipeline.log_source.walking import Chunk, Damage
from splashdam.record.aborted import control_type
from splashdam.record.batch import CODEC_MASK, MAGIC, BatchHeader
from splashdam.record.compression import Codec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

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
_LATEST_MS = MAX_LONG // 1000
_ROWS = 16 * 1024  # 3 MiB at most

Row = tuple[Any, ...]


def batch_ddl() -> str:
    """The columns as ``DataSource.schema()`` says them."""
    return ", ".join(f"`{name}` {kind}" for name, kind in _TYPES.items())


def batch_columns(schema: StructType) -> tuple[str, ...]:
    """The columns that a schema chooses.

    Raises:
        KafkaConfigurationError: one is unknown, of another type, or there is none.
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
    """The batches of a slice; damage that does not fail is a row with ``problem``.

    Raises:
        KafkaStorageError: a file cannot be read.
        CorruptMessageError: there is damage, and it is to fail.
    """
    rows: list[Row] = []
    for part in parts_of(whole, rules):
        rows.extend(_rows_of(part, whole, is_checked=rules.check_crcs))
        if len(rows) >= _ROWS:
            yield from _arrow(rows, columns)
            rows = []
    yield from _arrow(rows, columns)


def _rows_of(part: Part, whole: LogSlice, *, is_checked: bool) -> Iterator[Row]:
    segment, found = part.piece.segment.base_offset, part.found
    if isinstance(found, Damage):
        if not found.is_zeros:
            yield _damage(whole.where, segment, found)
        return
    for at, header in found.batches:
        is_beyond = header.magic == MAGIC and header.base_offset >= whole.end_offset
        if header.last_offset >= whole.first_offset and not is_beyond:
            place = (*whole.where, segment, found.position + at, header.size_bytes)
            kind = _control(found, at) if header.is_control else None
            yield (*place, *_fields(header, kind), header.crc, True if is_checked else None, None)


def _fields(header: BatchHeader, kind: str | None) -> Row:
    """From ``baseOffset`` to ``deleteHorizon``. What a format does not have is null."""
    is_new = header.magic == MAGIC
    horizon = header.delete_horizon_ms
    return (
        header.base_offset,
        header.last_offset,
        header.record_count if is_new or header.record_count >= 0 else None,
        header.magic,
        _codec(header),
        int(header.is_log_append_time) if header.magic else None,
        _time(header.base_timestamp if horizon is None else -1),
        _time(header.max_timestamp),
        header.partition_leader_epoch if is_new else None,
        header.producer_id if is_new else None,
        header.producer_epoch if is_new else None,
        header.base_sequence if is_new else None,
        header.last_sequence if is_new else None,
        header.is_transactional,
        header.is_control,
        kind,
        _time(-1 if horizon is None else horizon),
    )


def _damage(where: TopicPartition, segment: int, damage: Damage) -> Row:
    header = damage.header
    place = (*where, segment, damage.position, damage.size_bytes)
    problem = f"torn end: {damage.reason}" if damage.is_tail else damage.reason
    if header is None:
        return (*place, *[None] * (len(_TYPES) - len(place) - 1), problem)
    return (*place, *_fields(header, None), header.crc, False, problem)


def _control(chunk: Chunk, at: int) -> str | None:
    try:
        kind = control_type(chunk.data, at)
    except CorruptMessageError:  # the record is damaged behind a right checksum
        return None
    if kind is None or not 0 <= kind < len(_CONTROL_TYPES):
        return None
    return _CONTROL_TYPES[kind]


def _codec(header: BatchHeader) -> str:
    number = header.attributes & CODEC_MASK
    return Codec(number).name.lower() if number <= Codec.ZSTD else f"unknown ({number})"


def _time(timestamp_ms: int) -> int | None:
    """In microseconds. What is beyond them becomes the last, as with records."""
    return None if timestamp_ms < 0 else min(timestamp_ms, _LATEST_MS) * 1000


def _arrow(rows: list[Row], names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    if rows:
        schema = arrow_schema(names)
        columns = dict(zip(_TYPES, zip(*rows, strict=True), strict=True))
        arrays = [pa.array(columns[field.name], field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


@cache
def arrow_schema(names: tuple[str, ...]) -> pa.Schema:
    """What Arrow calls the columns, which is what Spark expects of a source with this schema."""
    import pyarrow as pa

    kinds = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    return pa.schema([pa.field(name, kinds[_TYPES[name]]) for name in names])
