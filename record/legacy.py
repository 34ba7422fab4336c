"""Read message sets: formats 0 and 1, which brokers wrote before Kafka 0.11. They are never written.

An entry is an offset, a size and one message. A compressed message is a wrapper whose value is a whole
message set. Byte layout: ``docs/format/message-set.md``. Semantics: Kafka's ``AbstractLegacyRecordBatch``.

LZ4 frames of message format 0 have a wrong header checksum: the byte after the frame descriptor is the second
of an xxHash32, which old Kafkas computed over magic number and descriptor, and LZ4 libraries over the
descriptor alone. The hash is written out here: it is 20 lines, for at most 15 bytes. Sources: the LZ4 frame
format, xxHash's specification, Kafka's ``Lz4BlockInputStream``.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from zlib import crc32

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.values import Buffer
from splashdam.record.batch import CODEC_MASK, INT32, LOG_APPEND_TIME_BIT, MAGIC_AT, BatchHeader, Codec
from splashdam.record.compression import decompress
from splashdam.record.record import Record

NO_TIMESTAMP = -1
UNKNOWN_COUNT = -1
"""The ``record_count`` of a wrapper, which is unknown before decompression."""

_HEAD = Struct(">qiIbb")  # offset, size, crc, magic, attributes
_TIMESTAMP = Struct(">q")
_CRC_FROM = 16
_MESSAGE_AT = (18, 26)  # where the key begins, by format: 1 has a timestamp before it
_SMALLEST_BYTES = (14, 22)
SMALLEST_ENTRY_BYTES = 26
"""A whole entry of format 0 with null key and null value."""

_MAX_OFFSET = (1 << 63) - 1


def is_legacy(data: Buffer, position: int = 0) -> bool:
    """Return whether the magic byte of the batch at ``position`` is 0 or 1."""
    return len(data) - position > MAGIC_AT and data[position + MAGIC_AT] < 2


def parse_entry(data: Buffer, position: int = 0) -> BatchHeader:
    """Parse the entry at ``position`` as a batch header; the message may be incomplete.

    Fields that the formats lack are -1: leader epoch, producer and sequence, in format 0 the timestamp. Both
    offsets of a wrapper are that of its last record; the first is unknown before decompression.

    Raises:
        CorruptMessageError: the entry is too short or inconsistent.
    """
    if len(data) - position < SMALLEST_ENTRY_BYTES:
        raise CorruptMessageError(
            f"position {position}: {len(data) - position} bytes are too few for a message of format 0 or 1"
        )
    offset, size, crc, magic, attributes = _HEAD.unpack_from(data, position)
    if size < _SMALLEST_BYTES[magic]:
        raise CorruptMessageError(
            f"position {position}: message size {size} is below {_SMALLEST_BYTES[magic]} (format {magic})"
        )
    if not 0 <= offset < _MAX_OFFSET:
        raise CorruptMessageError(f"position {position}: offset {offset} is invalid")
    known = CODEC_MASK | LOG_APPEND_TIME_BIT if magic else CODEC_MASK
    timestamp: int = _TIMESTAMP.unpack_from(data, position + _HEAD.size)[0] if magic else NO_TIMESTAMP
    count = UNKNOWN_COUNT if attributes & CODEC_MASK else 1
    return BatchHeader(
        offset, size, -1, magic, crc, attributes & known, 0, timestamp, timestamp, -1, -1, -1, count
    )


def entry_crc_ok(data: Buffer, position: int, header: BatchHeader) -> bool:
    """Return whether the message's CRC-32 is right; False, too, if bytes are missing."""
    end = position + header.size_bytes
    return len(data) >= end and crc32(memoryview(data)[position + _CRC_FROM : end]) == header.crc


def iter_entry_records(data: Buffer, position: int, *, max_bytes: int) -> Iterator[Record]:
    """Yield the record of an entry, or all records of a wrapper.

    Args:
        data: contains the whole entry.
        position: where the entry begins.
        max_bytes: maximum decompressed size of a wrapper.

    Raises:
        CorruptMessageError: the entry is truncated or damaged.
        UnsupportedCodecError: its codec is unknown, or the library for it is not installed.
    """
    header = parse_entry(data, position)
    view = memoryview(data)[position : position + header.size_bytes]
    where = f"the message at offset {header.base_offset}"
    if len(view) < header.size_bytes:
        raise CorruptMessageError(f"{where} has {header.size_bytes} bytes, {len(view)} are there")
    if header.codec is Codec.NONE:
        yield _record(view, header, header.base_offset, header.max_timestamp, where)
    else:
        yield from _unpacked(view, header, max_bytes, where)


def _unpacked(view: memoryview, header: BatchHeader, max_bytes: int, where: str) -> Iterator[Record]:
    if header.codec is Codec.ZSTD:
        raise CorruptMessageError(
            f"{where} is compressed with zstd, which format {header.magic} does not know"
        )
    _, packed = _key_and_value(view, header.magic, where)
    if packed is None:
        raise CorruptMessageError(f"{where} is a wrapper with a null value")
    has_old_header = header.codec is Codec.LZ4 and header.magic == 0
    stream = with_right_checksum(packed) if has_old_header else packed
    inner = memoryview(decompress(header.codec, stream, max_bytes=max_bytes))
    base = _base_offset(inner, header, where)
    for entry, each in _inner_entries(inner, header, where):
        timestamp = header.max_timestamp if header.is_log_append_time else each.max_timestamp
        yield _record(entry, each, base + each.base_offset, timestamp, where)


def _inner_entries(
    inner: memoryview, header: BatchHeader, where: str
) -> Iterator[tuple[memoryview, BatchHeader]]:
    position = 0
    while position < len(inner):
        if not is_legacy(inner, position):
            raise CorruptMessageError(f"{where} holds something else than messages at {position}")
        each = parse_entry(inner, position)
        end = position + each.size_bytes
        if each.magic != header.magic or each.attributes & CODEC_MASK or end > len(inner):
            raise CorruptMessageError(
                f"{where} holds, at {position}, a message that is cut off, compressed or of another format"
            )
        yield inner[position:end], each
        position = end


def _base_offset(inner: memoryview, header: BatchHeader, where: str) -> int:
    """Return what to add to the offsets inside a wrapper: 0 in format 0, where they are absolute."""
    last = None
    for _, each in _inner_entries(inner, header, where):
        last = each.base_offset
    if last is None:
        raise CorruptMessageError(f"{where} is a wrapper without messages")
    if header.magic == 0 or header.base_offset == 0:  # old producers left the wrapper's offset at 0
        return 0
    if header.base_offset < last:
        raise CorruptMessageError(f"{where} is a wrapper whose last message has the relative offset {last}")
    return header.base_offset - last


def _record(entry: memoryview, header: BatchHeader, offset: int, timestamp_ms: int, where: str) -> Record:
    key, value = _key_and_value(entry, header.magic, where)
    return Record(
        offset, timestamp_ms, None if key is None else bytes(key), None if value is None else bytes(value), ()
    )


def _key_and_value(entry: memoryview, magic: int, where: str) -> tuple[memoryview | None, memoryview | None]:
    key, position = _bytes(entry, _MESSAGE_AT[magic], where)
    value, position = _bytes(entry, position, where)
    if position != len(entry):
        raise CorruptMessageError(f"{where} has {len(entry) - position} bytes that belong to no field")
    return key, value


def _bytes(entry: memoryview, position: int, where: str) -> tuple[memoryview | None, int]:
    start = position + INT32.size
    if start > len(entry):
        raise CorruptMessageError(f"{where} ends before its last field")
    (size,) = INT32.unpack_from(entry, position)
    if size == -1:
        return None, start
    if not 0 <= size <= len(entry) - start:
        raise CorruptMessageError(f"{where} has a field of {size} bytes, {len(entry) - start} are left")
    return entry[start : start + size], start + size


_MAGIC = b"\x04\x22\x4d\x18"
_CONTENT_SIZE_BIT, _DICTIONARY_BIT = 0x08, 0x01
_PRIME_1, _PRIME_2, _PRIME_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_PRIME_4, _PRIME_5 = 0x27D4EB2F, 0x165667B1
_UINT32 = 0xFFFFFFFF
_STRIPE_BYTES = 16


def with_right_checksum(frame: Buffer) -> bytes:
    """Return the frame with the right header checksum; anything but an LZ4 frame is returned unchanged."""
    data = bytearray(frame)
    if data[:4] != _MAGIC or len(data) < 7:
        return bytes(data)
    flags = data[4]
    end = 6 + (8 if flags & _CONTENT_SIZE_BIT else 0) + (4 if flags & _DICTIONARY_BIT else 0)
    if len(data) > end:
        data[end] = xxhash32(bytes(data[4:end])) >> 8 & 0xFF
    return bytes(data)


def xxhash32(data: bytes) -> int:
    """Return xxHash32 with seed 0 of fewer than 16 bytes, the maximum of a frame descriptor.

    Raises:
        ValueError: there are more.
    """
    if len(data) >= _STRIPE_BYTES:
        raise ValueError(f"{len(data)} bytes are too many")
    state = (_PRIME_5 + len(data)) & _UINT32
    words = len(data) // 4 * 4
    for at in range(0, words, 4):
        word = int.from_bytes(data[at : at + 4], "little")
        state = _rotated(state + word * _PRIME_3, 17) * _PRIME_4 & _UINT32
    for byte in data[words:]:
        state = _rotated(state + byte * _PRIME_5, 11) * _PRIME_1 & _UINT32
    state = (state ^ state >> 15) * _PRIME_2 & _UINT32
    state = (state ^ state >> 13) * _PRIME_3 & _UINT32
    return state ^ state >> 16


def _rotated(value: int, bits: int) -> int:
    value &= _UINT32
    return (value << bits | value >> (32 - bits)) & _UINT32
