"""Reading the records of a batch, without trusting any length in it.

Every length and count is compared with the bytes that are there before anything is made of it. What damaged
or hostile input can cost is limited: unpacked bytes by ``max_bytes``, and a list of records by
``max_records``, since 7 bytes make a record that takes some 200. Who looks at one record after the other
(``iter_records``) pays for the bytes alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from splashdam.model.broker_errors import CorruptMessageError, InvalidRecordError
from splashdam.model.values import Buffer
from splashdam.record.batch import HEADER_BYTES, BatchHeader, parse_header
from splashdam.record.compression import MAX_DECOMPRESSED_BYTES, Codec, decompress

_SMALLEST_RECORD_BYTES = 7
_SMALLEST_HEADER_BYTES = 2
_UINT64 = (1 << 64) - 1
_VARINT_BITS, _VARLONG_BITS = 32, 64


class Record(NamedTuple):
    """One record of a log.

    Attributes:
        offset: its place in the partition.
        timestamp_ms: milliseconds since the epoch: the producer's, or the broker's with LogAppendTime.
        key: None for a null key.
        value: None for a null value.
        headers: in order; keys may repeat, values may be None.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


MAX_RECORDS = 500_000
"""What ``read_records`` makes of one batch unless told otherwise; a batch of 1 MiB, which is Kafka's default
limit, holds 150,000 at most when it is not compressed."""


def read_records(
    data: Buffer,
    position: int = 0,
    *,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    max_records: int = MAX_RECORDS,
) -> list[Record]:
    """All records of the batch that begins at ``position``; a control batch yields its marker.

    The checksum is not looked at (``crc_ok``), nor whether offsets ascend (``validate_records``).

    Args:
        data: holds the whole batch.
        position: where the batch begins.
        max_bytes: what its records may decompress to.
        max_records: how many there may be.

    Raises:
        CorruptMessageError: the batch is cut off or damaged, or has more records.
        UnsupportedCodecError: its codec is unknown, or the library for it is not installed.
    """
    header = parse_header(data, position)
    if header.record_count > max_records:
        raise CorruptMessageError(
            f"batch at offset {header.base_offset}: {header.record_count} records, the limit is {max_records}"
        )
    return list(iter_records(data, position, max_bytes=max_bytes))


def iter_records(
    data: Buffer, position: int = 0, *, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[Record]:
    """As ``read_records``, one record at a time and any number of them; damage is met when it is reached.

    Args:
        data: holds the whole batch.
        position: where the batch begins.
        max_bytes: what its records may decompress to.

    Raises:
        CorruptMessageError: the batch is cut off or damaged.
        UnsupportedCodecError: its codec is unknown, or the library for it is not installed.
    """
    header = parse_header(data, position)
    try:
        yield from _records(header, _body(data, position, header, max_bytes))
    except _DamagedError as error:
        raise CorruptMessageError(f"batch at offset {header.base_offset}: {error}") from None


def validate_records(data: Buffer, position: int = 0, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> int:
    """Checks what a leader demands of a batch from a producer, down to each record; not the checksum.

    There is at least one record, offsets count up from the batch's base without a gap, and the records are
    exactly what the batch holds. Semantics: ``LogValidator`` of the broker.

    Returns:
        The largest timestamp of the records, which is what the header's ``max_timestamp`` should say.

    Raises:
        CorruptMessageError: the header is damaged, or the batch is cut off.
        InvalidRecordError: the header is right and what it holds is not.
        UnsupportedCodecError: its codec is unknown, or the library for it is not installed.
    """
    header = parse_header(data, position)
    if not header.record_count or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"{header.record_count} records, but the last offset delta is {header.last_offset_delta}"
        )
    whole = memoryview(data)[position : position + header.size_bytes]
    if len(whole) < header.size_bytes:
        raise CorruptMessageError(f"{len(whole)} bytes of a batch of {header.size_bytes}")
    largest: int | None = None
    expected = header.base_offset
    try:
        for record in _records(header, _body(whole, 0, header, max_bytes)):
            if record.offset != expected:
                raise InvalidRecordError(f"a record has offset {record.offset}, due is {expected}")
            expected += 1
            if largest is None or record.timestamp_ms > largest:
                largest = record.timestamp_ms
    except (_DamagedError, CorruptMessageError) as error:
        raise InvalidRecordError(f"batch at offset {header.base_offset}: {error}") from None
    return header.max_timestamp if largest is None else largest


class _DamagedError(Exception):
    """The records are damaged; the text says where."""


def _body(data: Buffer, position: int, header: BatchHeader, max_bytes: int) -> bytes:
    start, end = position + HEADER_BYTES, position + header.size_bytes
    if len(data) < end:
        raise _DamagedError(f"it has {header.size_bytes} bytes, {len(data) - position} are there")
    body = memoryview(data)[start:end]
    return bytes(body) if header.codec is Codec.NONE else decompress(header.codec, body, max_bytes=max_bytes)


def _records(header: BatchHeader, body: bytes) -> Iterator[Record]:
    if header.record_count * _SMALLEST_RECORD_BYTES > len(body):
        raise _DamagedError(f"{header.record_count} records in {len(body)} bytes")
    reader = _Reader(body)
    append_time = header.max_timestamp if header.is_log_append_time else None
    for _ in range(header.record_count):
        yield reader.record(header.base_offset, header.base_timestamp, append_time)
    if reader.position != len(body):
        raise _DamagedError(f"{len(body) - reader.position} bytes behind the last record")


class _Reader:
    """Walks through the bytes of one batch's records."""

    __slots__ = ("_body", "_end", "position")

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._end = len(body)  # of the record at hand
        self.position = 0

    def record(self, base_offset: int, base_timestamp: int, append_time: int | None) -> Record:
        """The next record."""
        self._end = len(self._body)
        length = self._varint(_VARINT_BITS)
        start = self.position
        if not 0 <= length <= self._end - start:
            raise _DamagedError(f"a record of {length} bytes at {start}, {self._end - start} are left")
        self._end = start + length
        self._skip(1)  # attributes: none are defined
        delta = self._varint(_VARLONG_BITS)
        offset = base_offset + self._varint(_VARINT_BITS)
        key = self._bytes("key")
        value = self._bytes("value")
        headers = self._headers()
        if self.position != self._end:
            raise _DamagedError(f"{self._end - self.position} bytes at {self.position} belong to no field")
        timestamp = _int64(base_timestamp + delta) if append_time is None else append_time
        return Record(offset, timestamp, key, value, headers)

    def _headers(self) -> tuple[tuple[str, bytes | None], ...]:
        count = self._varint(_VARINT_BITS)
        if not count:
            return ()
        if not 0 < count * _SMALLEST_HEADER_BYTES <= self._end - self.position:
            raise _DamagedError(f"{count} headers at {self.position}")
        return tuple([(self._header_key(), self._bytes("header value")) for _ in range(count)])

    def _header_key(self) -> str:
        start = self.position
        key = self._bytes("header key")
        if key is None:
            raise _DamagedError(f"a null header key at {start}")
        try:
            return key.decode()
        except UnicodeDecodeError:
            raise _DamagedError(f"a header key at {start} that is not UTF-8") from None

    def _bytes(self, what: str) -> bytes | None:
        size = self._varint(_VARINT_BITS)
        if size == -1:
            return None
        start = self.position
        if not 0 <= size <= self._end - start:
            raise _DamagedError(f"{what} of {size} bytes at {start}, {self._end - start} are left")
        self.position = start + size
        return self._body[start : self.position]

    def _skip(self, count: int) -> None:
        self.position += count
        if self.position > self._end:
            raise _DamagedError(f"a record ends at {self._end} before its last field")

    def _varint(self, bits: int) -> int:
        position, end = self.position, self._end
        result = shift = 0
        while True:
            if position >= end:
                raise _DamagedError(f"a number at {self.position} runs past its record's end")
            byte = self._body[position]
            position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= bits:
                raise _DamagedError(f"a number at {self.position} has more than {bits} bits")
        self.position = position
        result &= (1 << bits) - 1
        return (result >> 1) ^ -(result & 1)


def _int64(value: int) -> int:
    """Timestamps wrap at 64 bits, as in the Java clients."""
    wrapped = value & _UINT64
    return wrapped - (1 << 64) if wrapped >> 63 else wrapped
