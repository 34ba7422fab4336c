"""The batches of a slice as Arrow, a row for each, of ``mode=batches``: no record is decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import nearest_name
from splashdam.pipeline.log_source.batch_table import BatchTable, damage_row
from splashdam.pipeline.log_source.reading import ReadingRules, parts_of
from splashdam.pipeline.log_source.slices import LogSlice
from splashdam.pipeline.log_source.walking import Chunk, Damage
from splashdam.record.aborted import control_type
from splashdam.record.batch import CONTROL_BIT, MAGIC

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
_ROWS = 16 * 1024  # 3 MiB at most


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
    except CorruptMessageError:  # the record is damaged behind a right checksum
        return None
    if kind is None or not 0 <= kind < len(_CONTROL_TYPES):
        return None
    return _CONTROL_TYPES[kind]


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
