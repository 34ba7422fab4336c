"""What a leader demands of the records that a producer sends (``LogValidator`` of Kafka's broker).

Whoever appends garbage blocks every consumer behind it for ever, with an offset that none can read and none
can pass. So a batch is accepted only if each reader reads it whole: its bytes unpack, they are exactly as
many records as the header says, and the offsets count up from the batch's base.

Kafka 4.4 was asked, kind by kind (``testing/contract/behaviours/batches.py``). In these cases it accepts what
is refused here, because consumers fail on it, lose records by it, or skip some:

* offset deltas that jump, repeat or go back, in a batch that is not compressed (it answers -1 where one is);
* a length below -1, which Java takes for null, a 32-bit number with bits beyond its type, and attributes
  above 127, which kafka-python takes for a longer number;
* fields that do not fit their record, and bytes behind the gzip or LZ4 data, in a compressed batch.

Nothing here knows a topic, a clock or a loop: it is safe in a thread, and lets other threads run while it
unpacks and while it walks through much.
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
        records: encoded, unpacked.
        scan: what they are like.
        max_timestamp_ms: what the batch's header must say: the largest timestamp, and -1 where none is above.
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
    """Checks all records of a batch from a producer; neither the header's attributes nor the checksum.

    Args:
        batch: exactly one batch.
        header: its header.
        max_bytes: what its records may decompress to. No more than about twice as much is ever held.
        any_offsets: takes any offset deltas, for who numbers the records anew.

    Raises:
        InvalidRecordError: the records are not what the header says, or do not unpack.
        OverLimitError: they unpack to more than ``max_bytes``.
        UnsupportedCodecError: the codec is unknown, or the library for it is not installed.
    """
    # Taken apart once, and made without a detour: this is done for every batch.
    _, _, _, _, _, attributes, last_delta, base_timestamp, _, _, _, _, count = header
    if count <= 0 or count != last_delta + 1:
        raise InvalidRecordError(f"the batch has {count} records, but its last offset delta is {last_delta}")
    records: Buffer = memoryview(batch)[HEADER_BYTES:]
    try:
        if attributes & CODEC_MASK:
            records = decompress(header.codec, records, max_bytes=max_bytes)
        scan = scan_records(records, count, base_timestamp, True)
    except OverLimitError:
        raise
    except CorruptMessageError as error:
        raise InvalidRecordError(error.message) from None
    except DamagedError as error:
        raise InvalidRecordError(str(error)) from None
    _, max_timestamp_ms, _, misplaced, misplaced_delta, misplaced_position = scan
    if misplaced >= 0 and not any_offsets:
        raise InvalidRecordError(
            f"record {misplaced}: offset delta {misplaced_delta} at {misplaced_position}, due is {misplaced}"
        )
    max_timestamp_ms = max(max_timestamp_ms, NO_TIMESTAMP_MS)
    return _NEW(ValidRecords, (records, scan, max_timestamp_ms))
