"""Headers of batches as Arrow's columns: a list for each column that is read, and no object for each row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from splashdam.model.options import MAX_LONG
from splashdam.model.values import TopicPartition
from splashdam.pipeline.log_source.walking import Damage
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

_CODECS = tuple(
    Codec(number).name.lower() if number <= Codec.ZSTD else f"unknown ({number})"
    for number in range(CODEC_MASK + 1)
)
_LATEST_MS = MAX_LONG // 1000

Column = Sequence[object]


def _times(all_ms: Iterable[int]) -> Column:
    """In microseconds. What is beyond them becomes the last, as with records."""
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
"""What headers alone tell. What a format does not have is null."""


@attrs.define
class BatchTable:
    """Sound batches of a partition, one after the other.

    Attributes:
        where: the partition.
        is_checked: whether their checksums were looked at.
        segments: the numbers of their segments.
        positions: where they begin there.
        headers: theirs.
        kinds: of control batches, what they are.
    """

    where: TopicPartition
    is_checked: bool
    segments: list[int] = attrs.field(factory=list)
    positions: list[int] = attrs.field(factory=list)
    headers: list[BatchHeader] = attrs.field(factory=list)
    kinds: list[str | None] = attrs.field(factory=list)

    def arrow(self, schema: pa.Schema) -> pa.RecordBatch:
        """The columns of a schema."""
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
    """Damage as one row: its place and size, what is wrong, and what its header tells where that is there."""
    told: dict[str, Column] = {
        "topic": [where.topic],
        "partition": [where.partition],
        "segment": [segment],
        "position": [damage.position],
        "sizeInBytes": [damage.size_bytes],
        "problem": [f"torn end: {damage.reason}" if damage.is_tail else damage.reason],
    }
    if damage.header is None:
        return _arrow(schema, 1, None, told)
    return _arrow(schema, 1, [damage.header], {**told, "crcValid": [False]})


def _arrow(
    schema: pa.Schema, rows: int, headers: Sequence[BatchHeader] | None, told: Mapping[str, Column]
) -> pa.RecordBatch:
    import pyarrow as pa

    def column(name: str) -> Column:
        if name in told:
            return told[name]
        make = None if headers is None else _OF_HEADERS.get(name)
        return [None] * rows if make is None or headers is None else make(headers)

    arrays = [pa.array(column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
