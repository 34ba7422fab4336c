"""Batches as they stand in a log: of format 2, or message sets of formats 0 and 1 that older brokers wrote.

Producers may send format 2 alone (``record.batch``); everything that reads a log goes through here.
"""

from __future__ import annotations

from collections.abc import Iterator

from splashdam.model.values import Buffer
from splashdam.record.batch import HEADER_BYTES, MAGIC, MAGIC_AT, BatchHeader, crc_ok, parse_header
from splashdam.record.legacy import SMALLEST_ENTRY_BYTES, entry_crc_ok, is_legacy, parse_entry


def header_is_there(data: Buffer, position: int) -> bool:
    """Whether enough is there to take the header at ``position`` apart, whatever its format."""
    left = len(data) - position
    return left >= HEADER_BYTES or (left >= SMALLEST_ENTRY_BYTES and data[position + MAGIC_AT] < MAGIC)


def parse_stored_header(data: Buffer, position: int = 0) -> BatchHeader:
    """As ``parse_header``, of any format; what formats 0 and 1 do not have is -1.

    Raises:
        CorruptMessageError: it is too short, or its numbers contradict each other.
    """
    return parse_entry(data, position) if is_legacy(data, position) else parse_header(data, position)


def stored_crc_ok(data: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the batch has the checksum its header names; False too if its bytes are not all there."""
    check = crc_ok if header.magic == MAGIC else entry_crc_ok
    return check(data, position, header)


def iter_stored_headers(data: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch from ``position`` on; a partial one at the end is left out.

    Raises:
        CorruptMessageError: at a header that is damaged.
    """
    end = len(data)
    while header_is_there(data, position):
        header = parse_stored_header(data, position)
        if end - position < header.size_bytes:
            return
        yield position, header
        position += header.size_bytes
