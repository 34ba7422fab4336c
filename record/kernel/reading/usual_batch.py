"""One look at a whole batch that is as most are: not compressed, and without a fault."""

from __future__ import annotations

from typing import TypeAlias

from splashdam.model.values import Buffer
from splashdam.record.batch import CRC_FROM, HEADER, HEADER_BYTES, LENGTH_END, MAGIC, TRANSACTIONAL_BIT
from splashdam.record.checksum import crc32c
from splashdam.record.damage import DamagedError
from splashdam.record.kernel.reading.walk import scan_records

HeaderFields: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]


def usual_batch(batch: Buffer) -> tuple[HeaderFields, int, int] | None:
    """The fields of its ``BatchHeader``, the smallest timestamp, and how many records have no key.

    A batch of a transaction is usual if it has a producer id; whether its producer began one is not told.
    None for any other batch, damaged or only unusual: ``validate_records`` and who calls it tell what it is.
    A leader asks this of each batch that a producer sends, so it is one call, and a short one.

    Args:
        batch: as a producer sent it, from its first byte to its last.
    """
    if len(batch) < HEADER_BYTES:
        return None
    view = memoryview(batch)
    fields: HeaderFields = HEADER.unpack_from(view)
    base_offset, length, _, magic, crc, attributes, last_delta = fields[:7]
    base_timestamp, max_timestamp, producer_id, _, sequence, count = fields[7:]
    is_usual = (
        length == len(view) - LENGTH_END
        and magic == MAGIC
        and base_offset == 0
        and (attributes == 0 or (attributes == TRANSACTIONAL_BIT and producer_id >= 0))
        and 0 < count == last_delta + 1
        and not producer_id >= 0 > sequence
    )
    if not is_usual or crc32c(view[CRC_FROM:]) != crc:
        return None
    try:
        scan = scan_records(view[HEADER_BYTES:], count, base_timestamp, exact=True)
    except DamagedError:
        return None
    if scan.misplaced >= 0 or scan.max_timestamp_ms != max_timestamp:
        return None
    return fields, scan.min_timestamp_ms, scan.null_keys
