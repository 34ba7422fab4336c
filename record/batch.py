"""The 61-byte header of a record batch (message format 2): parse it, check it, set the broker's fields.

Byte layout: ``docs/format/record-batch.md``. Everything works in place; no record is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.errors import UnsupportedCodecError
from splashdam.model.values import Buffer
from splashdam.record.checksum import crc32c

HEADER_BYTES = 61
MAGIC = 2

LENGTH_END = 12  # batchLength counts from here
MAGIC_AT = 16
CRC_AT = 17
CRC_FROM = 21  # the checksum covers everything from the attributes on
ATTRIBUTES_AT = 21
MAX_TIMESTAMP_AT = 35
PRODUCER_AT = 43

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

HEADER = Struct(">qiibIhiqqqhii")
INT16 = Struct(">h")
INT32 = Struct(">i")
INT64 = Struct(">q")
UINT32 = Struct(">I")
PRODUCER = Struct(">qhi")

_MIN_LENGTH = HEADER_BYTES - LENGTH_END
_MAX_SEQUENCE = 0x7FFFFFFF
_MAX_OFFSET = (1 << 63) - 1
_NEW = tuple.__new__  # what BatchHeader._make calls, without its check of the length


class Codec(IntEnum):
    """A compression codec, by its number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    """The header of a batch: fields with Kafka's names, in the order of the bytes.

    Attributes:
        base_offset: offset of the first record (before compaction).
        batch_length: number of bytes after this field.
        partition_leader_epoch: set by the broker; not covered by the checksum.
        magic: always 2.
        crc: CRC-32C of everything from ``attributes`` on.
        attributes: bit field; see the properties.
        last_offset_delta: ``base_offset`` plus this is the last offset; compaction keeps it.
        base_timestamp: base of the records' timestamps; the delete horizon if that bit is set.
        max_timestamp: largest timestamp of the records, or the broker's append time.
        producer_id: -1 for none.
        producer_epoch: -1 for none.
        base_sequence: -1 for none, and in control batches.
        record_count: may be less than ``last_offset_delta + 1`` after compaction; 0 in a kept empty batch.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch, header included."""
        return LENGTH_END + self.batch_length

    @property
    def last_offset(self) -> int:
        """Offset of the last record (before compaction)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """The codec of the records.

        Raises:
            UnsupportedCodecError: the attributes name a codec that does not exist.
        """
        number = self.attributes & CODEC_MASK
        if number > Codec.ZSTD:
            raise UnsupportedCodecError(f"the batch at offset {self.base_offset} names codec {number}")
        return Codec(number)

    @property
    def is_transactional(self) -> bool:
        """The batch belongs to a transaction (or ends one)."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """The batch is a transaction marker, which is never delivered to applications."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_log_append_time(self) -> bool:
        """Every record has ``max_timestamp``: the broker's append time."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Time from which compaction may remove the batch's tombstones or marker; None: not set."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, -1 for none; sequences wrap from 2,147,483,647 to 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & _MAX_SEQUENCE


def parse_header(data: Buffer, position: int = 0) -> BatchHeader:
    """Parse the header at ``position``; the records need not be present.

    Raises:
        CorruptMessageError: the header is incomplete, not of format 2, or inconsistent.
    """
    if position < 0 or len(data) - position < HEADER_BYTES:
        raise CorruptMessageError(
            f"position {position}: {max(0, len(data) - position)} bytes are too few for a batch header"
        )
    header = _NEW(BatchHeader, HEADER.unpack_from(data, position))
    base_offset, batch_length, _, magic, _, _, delta, _, _, _, _, _, record_count = header
    # The rules of _problem in one expression: every batch that is written or read passes here.
    if (
        batch_length >= _MIN_LENGTH
        and magic == MAGIC
        and 0 <= base_offset < _MAX_OFFSET - delta
        and 0 <= delta >= record_count - 1 >= -1
    ):
        return header
    raise CorruptMessageError(f"position {position}: {_problem(header)}")


def _problem(header: BatchHeader) -> str:
    # The length first: it is what is wrong in a tail of zeros.
    if header.batch_length < _MIN_LENGTH:
        return f"batch length {header.batch_length} is below {_MIN_LENGTH}"
    if header.magic != MAGIC:
        return f"message format {header.magic}, only {MAGIC} is read"
    if header.base_offset < 0:
        return f"base offset {header.base_offset} is negative"
    if header.last_offset_delta < 0:
        return f"last offset delta {header.last_offset_delta} is negative"
    if header.last_offset >= _MAX_OFFSET:  # the next offset must fit, too
        return f"last offset {header.last_offset} is beyond 64 bits"
    return f"{header.record_count} records, but the last offset delta is {header.last_offset_delta}"


def iter_headers(data: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each whole batch from ``position`` on; skip a partial one at the end.

    Raises:
        CorruptMessageError: a header is damaged.
    """
    end = len(data)
    while end - position >= HEADER_BYTES:
        header = parse_header(data, position)
        if end - position < header.size_bytes:
            return
        yield position, header
        position += header.size_bytes


def crc_ok(data: Buffer, position: int, header: BatchHeader) -> bool:
    """Return whether the checksum is right; False, too, if bytes are missing."""
    end = position + header.size_bytes
    if len(data) < end:
        return False
    return crc32c(memoryview(data)[position + CRC_FROM : end]) == header.crc


def stamp_log_append_time(batch: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Set LogAppendTime in a batch: attribute, maximum timestamp and checksum.

    Raises:
        CorruptMessageError: there is no whole batch at ``position``; nothing was changed.
    """
    header = parse_header(batch, position)
    _refuse_torn(batch, position, header.size_bytes)
    INT16.pack_into(batch, position + ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_BIT)
    INT64.pack_into(batch, position + MAX_TIMESTAMP_AT, timestamp_ms)
    stamp_crc(batch, position, header.size_bytes)


def stamp_crc(batch: bytearray | memoryview, position: int, size_bytes: int) -> None:
    """Compute and write the checksum of the batch of ``size_bytes`` at ``position``.

    Raises:
        CorruptMessageError: the data ends before the batch does.
    """
    _refuse_torn(batch, position, size_bytes)
    with memoryview(batch) as view:
        crc = crc32c(view[position + CRC_FROM : position + size_bytes])
    UINT32.pack_into(batch, position + CRC_AT, crc)


def _refuse_torn(batch: bytearray | memoryview, position: int, size_bytes: int) -> None:
    if len(batch) - position < size_bytes:
        raise CorruptMessageError(f"position {position}: the data ends before the batch's {size_bytes} bytes")
