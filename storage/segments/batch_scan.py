"""Iterate over the batches of a log file: heads for look-ups, whole batches with checksums for recovery.

All message formats are accepted: what older brokers wrote stays readable.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.record.batch import HEADER_BYTES, LENGTH_END, BatchHeader
from splashdam.record.legacy import SMALLEST_ENTRY_BYTES, parse_entry
from splashdam.record.stored import header_is_there, parse_stored_header, stored_crc_ok
from splashdam.storage.files.log_file import LogFile

_HEAD = Struct(">qi4xb6xi8xq")  # baseOffset, batchLength, magic, lastOffsetDelta, maxTimestamp: docs/format
_HEAD_CHUNK_BYTES = 8 * 1024  # an index interval and some more
_BATCH_CHUNK_BYTES = 4 * 1024 * 1024


class Head(NamedTuple):
    """Position of a batch, and the header fields that look-ups need."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int


def iter_heads(file: LogFile, position: int, end: int) -> Iterator[Head]:
    """Yield the batches from ``position``, where one starts, to ``end``, where one ends.

    Raises:
        CorruptMessageError: a batch is cut short or its length is impossible.
        KafkaStorageError: the file cannot be read.
    """
    chunk, start = b"", position
    while position < end:
        at = position - start
        if at + HEADER_BYTES > len(chunk):
            chunk, start, at = file.read(position, _HEAD_CHUNK_BYTES), position, 0
        if len(chunk) - at < HEADER_BYTES:
            head = _short_head(file, chunk[at:], position)
        else:
            base_offset, length, magic, last_delta, max_timestamp = _HEAD.unpack_from(chunk, at)
            if magic in (0, 1):
                head = _legacy_head(parse_entry(chunk, at), position)
            else:
                size = LENGTH_END + length
                if size < HEADER_BYTES:
                    raise CorruptMessageError(
                        f"{file.path}, position {position}: impossible batch length {length}"
                    )
                head = Head(position, size, base_offset, base_offset + last_delta, max_timestamp)
        if position + head.size_bytes > end:
            raise CorruptMessageError(
                f"{file.path}, position {position}: impossible batch length {head.size_bytes - LENGTH_END}"
            )
        yield head
        position += head.size_bytes


def _short_head(file: LogFile, chunk: bytes, position: int) -> Head:
    """Return the head of a batch of format 0 or 1 that is shorter than a header of format 2."""
    if not header_is_there(chunk, 0):
        raise CorruptMessageError(f"{file.path}, position {position}: a batch is cut short")
    return _legacy_head(parse_entry(chunk), position)


def _legacy_head(entry: BatchHeader, position: int) -> Head:
    return Head(position, entry.size_bytes, entry.base_offset, entry.last_offset, entry.max_timestamp)


def iter_headers(file: LogFile, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch from ``position`` to the end of the file.

    Raises:
        CorruptMessageError: a header is damaged.
        KafkaStorageError: the file cannot be read.
    """
    chunk, start = b"", position
    while position < file.end:
        at = position - start
        if at + HEADER_BYTES > len(chunk):
            chunk, start, at = file.read(position, _HEAD_CHUNK_BYTES), position, 0
        header = parse_stored_header(chunk, at)
        if position + header.size_bytes > file.end:
            raise CorruptMessageError(f"{file.path}, position {position}: a batch is cut short")
        yield position, header
        position += header.size_bytes


def iter_sound_batches(file: LogFile, position: int = 0) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield each whole batch with a right checksum; stop at the first other bytes or at the end of file.

    A torn tail, zeros, and anything else that is no batch end the iteration. No memory is allocated for a
    length that exceeds the file.

    Raises:
        KafkaStorageError: the file cannot be read.
    """
    chunk, start = memoryview(b""), position
    while file.end - position >= SMALLEST_ENTRY_BYTES:
        at = position - start
        if len(chunk) - at < HEADER_BYTES:
            chunk, start, at = memoryview(file.read(position, _BATCH_CHUNK_BYTES)), position, 0
        try:
            header = parse_stored_header(chunk, at)
        except CorruptMessageError:
            return
        size = header.size_bytes
        if position + size > file.end:
            return
        if len(chunk) - at < size:
            chunk, start, at = memoryview(file.read(position, max(size, _BATCH_CHUNK_BYTES))), position, 0
        if not stored_crc_ok(chunk, at, header):
            return
        yield position, header, chunk[at : at + size]
        position += size
