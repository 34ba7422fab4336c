"""The fields of a batch as bytes: ``docs/format/record-batch.md`` as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from splashdam.model.views.log import FieldView
from splashdam.record.batch import HEADER_BYTES, MAGIC, BatchHeader


class Field(NamedTuple):
    """A field of the header.

    Attributes:
        name: in the document, and of Kafka.
        size_bytes: its length.
        attribute: of ``BatchHeader``.
    """

    name: str
    size_bytes: int
    attribute: str


HEADER_FIELDS = (
    Field("baseOffset", 8, "base_offset"),
    Field("batchLength", 4, "batch_length"),
    Field("partitionLeaderEpoch", 4, "partition_leader_epoch"),
    Field("magic", 1, "magic"),
    Field("crc", 4, "crc"),
    Field("attributes", 2, "attributes"),
    Field("lastOffsetDelta", 4, "last_offset_delta"),
    Field("baseTimestamp", 8, "base_timestamp"),
    Field("maxTimestamp", 8, "max_timestamp"),
    Field("producerId", 8, "producer_id"),
    Field("producerEpoch", 2, "producer_epoch"),
    Field("baseSequence", 4, "base_sequence"),
    Field("recordCount", 4, "record_count"),
)

_BITS = frozenset({"attributes", "crc"})


def fields_of(header: BatchHeader, data: bytes) -> tuple[FieldView, ...]:
    """Return the fields that cover the first bytes of a batch.

    Args:
        header: of the batch.
        data: its first bytes; records that are cut off at their end are there as far as they are.
    """
    if header.magic != MAGIC:
        name = f"message set of format {header.magic}"
        return (FieldView(name=name, start=0, size_bytes=len(data), value="see message-set.md"),)
    found, at = [], 0
    for field in HEADER_FIELDS:
        value = getattr(header, field.attribute)
        text = f"{value:#0{2 + 2 * field.size_bytes}x}" if field.name in _BITS else str(value)
        found.append(FieldView(name=field.name, start=at, size_bytes=field.size_bytes, value=text))
        at += field.size_bytes
    if header.attributes & 7:
        codec = f"{header.record_count} records, compressed"
        found.append(FieldView(name="records", start=at, size_bytes=len(data) - at, value=codec))
    else:
        found += _records(header, data)
    return tuple(found)


def _records(header: BatchHeader, data: bytes) -> Iterator[FieldView]:
    """Yield a field for each record: its length, a varint, and its body."""
    at = HEADER_BYTES
    for number in range(header.record_count):
        if at >= len(data):
            return
        size = next((size for size in range(1, 6) if data[at + size - 1 : at + size] < b"\x80"), 6)
        if at + size > len(data):  # cut off
            return
        coded = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data[at : at + size]))
        length = (coded >> 1) ^ -(coded & 1)
        end = min(at + size + max(0, length), len(data))
        yield FieldView(
            name=f"record {number}", start=at, size_bytes=end - at, value=f"{length} bytes behind its length"
        )
        at = end
