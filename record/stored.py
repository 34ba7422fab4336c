"""Batches of any format in a log: format 2, and message sets of formats 0 and 1 that older brokers wrote.

Producers may send only format 2 (``record.batch``); everything that reads a log uses these functions.
"""

from __future__ import annotations

from collections.abc import Iterator

from splashdam.model.values import Buffer
from splashdam.record.batch import HEADER_BYTES, MAGIC, MAGIC_AT, BatchHeader, crc_ok, parse_header
from splashdam.record.legacy import SMALLEST_ENTRY_BYTES, entry_crc_ok, is_legacy, parse_entry


def header_is_there(data: Buffer, position: int) -> bool:
    """Return whether the header at ``position`` is complete, whatever its format."""
    left = len(data) - position
    return left >= HEADER_BYTES or (left >= SMALLEST_ENTRY_BYTES and data[position + MAGIC_AT] < MAGIC)


def parse_stored_header(data: Buffer, position: int = 0) -> BatchHeader:
    """Parse a header of any format; fields that formats 0 and 1 lack are -1.

    Raises:
        CorruptMessageError: the header is incomplete or inconsistent.
    """
    return parse_entry(data, position) if is_legacy(data, position) else parse_header(data, position)


def stored_crc_ok(data: Buffer, position: int, header: BatchHeader) -> bool:
    """Return whether the checksum is right; False, too, if bytes are missing."""
    check = crc_ok if header.magic == MAGIC else entry_crc_ok
    return check(data, position, header)


def iter_stored_headers(data: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each whole batch from ``position`` on; skip a partial one at the end.

    Raises:
        CorruptMessageError: a header is damaged.
    """
    end = len(data)
    while header_is_there(data, position):
        header = parse_stored_header(data, position)
        if end - position < header.size_bytes:
            return
        yield position, header
        position += header.size_bytes
