"""Validate the records of producers before they are appended (Kafka: ``LogValidator``).

An invalid batch in the log blocks every consumer for ever: it cannot read the offset and cannot pass it. So a
batch is accepted only if every reader can read it whole: it decompresses, to exactly as many records as the
header says, and the offsets ascend by one from the base offset.

Compared with Kafka 4.4, kind by kind (``testing/contract/behaviours/batches.py``). These cases are accepted
by Kafka and rejected here, because consumers fail on them, lose records or skip some:

* offset deltas that jump, repeat or go back, in an uncompressed batch (in a compressed one Kafka answers -1);
* a length below -1, which Java takes for null, a 32-bit number with bits beyond its type, and attributes
  above 127, which kafka-python takes for a longer number;
* fields that do not fit their record, and bytes after the gzip or LZ4 data, in a compressed batch.

The functions know no topic, clock or loop, so they may run in a thread; decompressing and scanning large
batches release the GIL.
"""

from __future__ import annotations

from typing import NamedTuple

from splashdam.model.broker_errors import CorruptMessageError, InvalidRecordError
from splashdam.model.values import Buffer
from splashdam.record.batch import CODEC_MASK, HEADER_BYTES, BatchHeader
from splashdam.record.compression import MAX_DECOMPRESSED_BYTES, OverLimitError, decompress
from splashdam.record.damage import DamagedError
from splashdam.record.kernel import scan_records
from splashdam.record.record import RecordScan

NO_TIMESTAMP_MS = -1
_NEW = tuple.__new__


class ValidRecords(NamedTuple):
    """Records that a leader may append.

    Attributes:
        records: encoded and decompressed.
        scan: the result of scanning them.
        max_timestamp_ms: the largest timestamp, at least -1, for the batch's header.
    """

    records: Buffer
    scan: RecordScan
    max_timestamp_ms: int


def validate_records(
    batch: Buffer,
    header: BatchHeader,
    *,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    any_offsets: bool = False,
) -> ValidRecords:
    """Check all records of a producer's batch, but not the header's attributes and checksum.

    Args:
        batch: exactly one batch.
        header: its header.
        max_bytes: maximum decompressed size; memory use is at most about twice as much.
        any_offsets: allow any offset deltas, for callers that assign new ones.

    Raises:
        InvalidRecordError: the records do not match the header, or cannot be decompressed.
        OverLimitError: they decompress to more than ``max_bytes``.
        UnsupportedCodecError: the codec is unknown, or the library for it is not installed.
    """
    # Unpacked in one step, and built by tuple.__new__: this runs for every batch.
    _, _, _, _, _, attributes, last_delta, base_timestamp, _, _, _, _, count = header
    if count <= 0 or count != last_delta + 1:
        raise InvalidRecordError(f"the batch has {count} records, but its last offset delta is {last_delta}")
    records: Buffer = memoryview(batch)[HEADER_BYTES:]
    try:
        if attributes & CODEC_MASK:
            records = decompress(header.codec, records, max_bytes=max_bytes)
        scan = scan_records(records, count, base_timestamp, True)
    # A subclass of CorruptMessageError that callers tell apart.
    except OverLimitError:
        raise
    except CorruptMessageError as error:
        raise InvalidRecordError(error.message) from None
    except DamagedError as error:
        raise InvalidRecordError(str(error)) from None
    _, max_timestamp_ms, _, misplaced, misplaced_delta, misplaced_position = scan
    if misplaced >= 0 and not any_offsets:
        raise InvalidRecordError(
            f"record {misplaced}: offset delta {misplaced_delta} at {misplaced_position}, not {misplaced}"
        )
    max_timestamp_ms = max(max_timestamp_ms, NO_TIMESTAMP_MS)
    return _NEW(ValidRecords, (records, scan, max_timestamp_ms))
