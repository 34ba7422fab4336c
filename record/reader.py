"""Read the records of a batch, without trusting any length in it.

Every length and count is compared with the bytes that are left before anything is allocated. The cost of
damaged or hostile input is limited: decompressed bytes by ``max_bytes``, and a list of records by
``max_records``, since a record of 7 bytes takes some 200 as an object. ``iter_records`` needs memory for the
bytes only.
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
    "iter_unpacked_records",
    "read_records",
    "scan_batch",
    "unpack_records",
]

_RECORDS_AT_ONCE = 256
"""Records that ``iter_records`` decodes at a time: many enough that the calls cost little."""

MAX_RECORDS = 500_000
"""Default maximum of ``read_records``; an uncompressed batch of 1 MiB, Kafka's default limit, has at most
150,000."""


def read_records(
    data: Buffer,
    position: int = 0,
    *,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    max_records: int = MAX_RECORDS,
) -> list[Record]:
    """Return all records of the batch at ``position``; for a control batch, its marker.

    Formats 0 and 1 (``record.legacy``) are supported. Neither the checksum is checked (``crc_ok`` does) nor
    the order of offsets (``validation.validate_records``).

    Args:
        data: contains the whole batch.
        position: where the batch begins.
        max_bytes: maximum decompressed size.
        max_records: maximum number of records.

    Raises:
        CorruptMessageError: the batch is truncated or damaged, or exceeds a limit.
        UnsupportedCodecError: its codec is unknown, or the library for it is not installed.
    """
    if is_legacy(data, position):  # the record count of a wrapper is unknown until its end
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
    """Yield records one at a time, any number of them; damage is raised when it is reached.

    ``data`` is copied or decompressed for the first record, and may change afterwards.

    Args:
        data: contains the whole batch.
        position: where the batch begins.
        max_bytes: maximum decompressed size.

    Raises:
        CorruptMessageError: the batch is truncated or damaged.
        UnsupportedCodecError: its codec is unknown, or the library for it is not installed.
    """
    if is_legacy(data, position):
        yield from iter_entry_records(data, position, max_bytes=max_bytes)
        return
    header = parse_header(data, position)
    yield from iter_unpacked_records(header, bytes(unpack_records(data, position, header, max_bytes)))


def iter_unpacked_records(header: BatchHeader, records: Buffer) -> Iterator[Record]:
    """Yield the records of a batch of format 2 that `unpack_records` has unpacked, one at a time.

    Args:
        header: of the batch.
        records: must not change meanwhile.

    Raises:
        CorruptMessageError: a record is damaged.
    """
    try:
        for some in _records(header, records, _RECORDS_AT_ONCE):
            yield from some
    except DamagedError as error:
        raise _corrupt(header, error) from None


def scan_batch(data: Buffer, position: int = 0, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> RecordScan:
    """Check the structure of a producer's batch, down to each record, without making record objects.

    Raises:
        OverLimitError: it decompresses to more than ``max_bytes``.
        CorruptMessageError: the header is damaged, or the batch is truncated.
        InvalidRecordError: the header is valid and the records are not.
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
    # A subclass of CorruptMessageError that callers tell apart.
    except OverLimitError:
        raise
    except (DamagedError, CorruptMessageError) as error:
        raise InvalidRecordError(f"batch at offset {header.base_offset}: {error}") from None


def unpack_records(
    data: Buffer, position: int, header: BatchHeader, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Buffer:
    """Return the decompressed records of the batch at ``position``; a view if it is not compressed.

    Raises:
        CorruptMessageError: the batch is truncated, or cannot be decompressed within ``max_bytes``.
        UnsupportedCodecError: its codec is unknown, or the library for it is not installed.
    """
    start, end = position + HEADER_BYTES, position + header.size_bytes
    if len(data) < end:
        raise CorruptMessageError(
            f"batch at offset {header.base_offset}: it has {header.size_bytes} bytes, "
            f"{len(data) - position} are there"
        )
    body = memoryview(data)[start:end]
    if not header.attributes & CODEC_MASK:  # the usual case, without making a Codec
        return body
    return decompress(header.codec, body, max_bytes=max_bytes)


def _records(header: BatchHeader, records: Buffer, at_once: int) -> Iterator[list[Record]]:
    """Yield all records, so many at a time; damage is raised when it is reached."""
    count, number, position = header.record_count, 0, 0
    append_time = header.max_timestamp if header.is_log_append_time else None
    # Once even for a batch without records: bytes may follow all the same.
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
