"""Reading the records of a batch, without trusting any length in it.

Every length and count is compared with the bytes that are there before anything is made of it. What damaged
or hostile input can cost is limited: unpacked bytes by ``max_bytes``, and a list of records by
``max_records``, since 7 bytes make a record that takes some 200. Who looks at one record after the other
(``iter_records``) pays for the bytes alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from splashdam.model.broker_errors import CorruptMessageError, InvalidRecordError
from splashdam.model.values import Buffer
from splashdam.record.batch import CODEC_MASK, HEADER_BYTES, BatchHeader, parse_header
from splashdam.record.compression import MAX_DECOMPRESSED_BYTES, OverLimitError, decompress
from splashdam.record.damage import Damage, DamagedError, Field, damaged
from splashdam.record.kernel import decode_records, scan_records
from splashdam.record.legacy import is_legacy, iter_entry_records
from splashdam.record.record import Record, RecordScan

__all__ = [
    "MAX_RECORDS",
    "Record",
    "RecordScan",
    "iter_records",
    "read_records",
    "scan_batch",
    "unpack_records",
]

_RECORDS_AT_ONCE = 256
"""What ``iter_records`` makes at a time: enough that the calls cost little, few enough to be no burden."""

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

    Batches of formats 0 and 1 (``record.legacy``) are read as well.

    The checksum is not looked at (``crc_ok``), nor whether offsets ascend (``validation.validate_records``).

    Args:
        data: holds the whole batch.
        position: where the batch begins.
        max_bytes: what its records may decompress to.
        max_records: how many there may be.

    Raises:
        CorruptMessageError: the batch is cut off or damaged, or has more records.
        UnsupportedCodecError: its codec is unknown, or the library for it is not installed.
    """
    if is_legacy(data, position):  # how many a wrapper holds is known only behind its last
        inner = list(islice(iter_records(data, position, max_bytes=max_bytes), max_records + 1))
        if len(inner) > max_records:
            raise CorruptMessageError(f"the message at {position} holds more records than {max_records}")
        return inner
    header = parse_header(data, position)
    if header.record_count > max_records:
        raise CorruptMessageError(
            f"batch at offset {header.base_offset}: {header.record_count} records, the limit is {max_records}"
        )
    records: list[Record] = []
    try:
        for some in _records(header, unpack_records(data, position, header, max_bytes), header.record_count):
            records += some
    except DamagedError as error:
        raise _corrupt(header, error) from None
    return records


def iter_records(
    data: Buffer, position: int = 0, *, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[Record]:
    """As ``read_records``, one record at a time and any number of them; damage is met when it is reached.

    ``data`` is copied or unpacked when the first record is asked for, and may change after that.

    Args:
        data: holds the whole batch.
        position: where the batch begins.
        max_bytes: what its records may decompress to.

    Raises:
        CorruptMessageError: the batch is cut off or damaged.
        UnsupportedCodecError: its codec is unknown, or the library for it is not installed.
    """
    if is_legacy(data, position):
        yield from iter_entry_records(data, position, max_bytes=max_bytes)
        return
    header = parse_header(data, position)
    try:
        records = bytes(unpack_records(data, position, header, max_bytes))
        for some in _records(header, records, _RECORDS_AT_ONCE):
            yield from some
    except DamagedError as error:
        raise _corrupt(header, error) from None


def scan_batch(data: Buffer, position: int = 0, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> RecordScan:
    """Looks at the structure of a batch from a producer, down to each record, without making records of it.

    Raises:
        OverLimitError: it unpacks to more than ``max_bytes``.
        CorruptMessageError: the header is damaged, or the batch is cut off.
        InvalidRecordError: the header is right and what it holds is not.
        UnsupportedCodecError: its codec is unknown, or the library for it is not installed.
    """
    header = parse_header(data, position)
    whole = memoryview(data)[position : position + header.size_bytes]
    if len(whole) < header.size_bytes:
        raise CorruptMessageError(f"{len(whole)} bytes of a batch of {header.size_bytes}")
    try:
        return scan_records(
            unpack_records(whole, 0, header, max_bytes), header.record_count, header.base_timestamp
        )
    except OverLimitError:
        raise
    except (DamagedError, CorruptMessageError) as error:
        raise InvalidRecordError(f"batch at offset {header.base_offset}: {error}") from None


def unpack_records(
    data: Buffer, position: int, header: BatchHeader, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Buffer:
    """What follows the header of the batch at ``position``: unpacked, or a view where it is not packed.

    Raises:
        CorruptMessageError: the batch is cut off, or unpacks badly or to more than ``max_bytes``.
        UnsupportedCodecError: its codec is unknown, or the library for it is not installed.
    """
    start, end = position + HEADER_BYTES, position + header.size_bytes
    if len(data) < end:
        raise CorruptMessageError(
            f"batch at offset {header.base_offset}: it has {header.size_bytes} bytes, "
            f"{len(data) - position} are there"
        )
    body = memoryview(data)[start:end]
    if not header.attributes & CODEC_MASK:  # the usual case, without making an enum of it
        return body
    return decompress(header.codec, body, max_bytes=max_bytes)


def _records(header: BatchHeader, records: Buffer, at_once: int) -> Iterator[list[Record]]:
    """All of them, so many at a time; damage is raised when it is first in line."""
    count, number, position = header.record_count, 0, 0
    append_time = header.max_timestamp if header.is_log_append_time else None
    while True:
        some, position = decode_records(
            records,
            position,
            number,
            min(number + at_once, count),
            record_count=count,
            base_offset=header.base_offset,
            base_timestamp=header.base_timestamp,
            append_time=append_time,
        )
        yield some
        number += len(some)
        if number == count:
            break
    left = len(records) - position
    if left:
        raise damaged(Damage.BEHIND_LAST, Field.RECORD, count, position, said=0, left=left)


def _corrupt(header: BatchHeader, error: DamagedError) -> CorruptMessageError:
    return CorruptMessageError(f"batch at offset {header.base_offset}: {error}")
