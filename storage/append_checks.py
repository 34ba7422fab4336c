"""The checks of a producer's batch before a leader appends it, in Kafka's order (LogValidator, UnifiedLog).

First header and checksum, then the records: each batch is walked through once without decoding it
(``record.validation``; 8 to 13 ns a record). A batch may have a right header and checksum around garbage, and
no consumer gets past that. Batches that a follower copies or the broker itself writes are not checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from splashdam.model.broker_errors import (
    BrokerResponseError,
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    RecordListTooLargeError,
    UnsupportedCompressionTypeError,
)
from splashdam.model.errors import UnsupportedCodecError
from splashdam.model.options import MAX_LONG
from splashdam.model.values import Buffer
from splashdam.record.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER,
    HEADER_BYTES,
    INT16,
    INT64,
    LENGTH_END,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    BatchHeader,
    Codec,
    crc_ok,
    parse_header,
    stamp_crc,
)
from splashdam.record.compression import MAX_DECOMPRESSED_BYTES, OverLimitError
from splashdam.record.kernel import faulty_records, usual_batch
from splashdam.record.validation import ValidRecords, validate_records
from splashdam.storage.settings import LogSettings

MAX_RECORDS = 500_000
"""Records accepted in one batch. A few compressed bytes may stand for millions of records."""

_LAST_CODEC = int(Codec.ZSTD)
_NEW = tuple.__new__  # of a named tuple from fields: its own ``_make`` is a Python frame for every batch
_MAX_NAMED_RECORDS = 10_000  # each has a text of its own in the answer


class RecordErrors(BrokerResponseError):
    """An error that names the records at fault (KIP-467).

    Attributes:
        record_errors: what is wrong, by the index of the record in its batch.
    """

    def __init__(self, message: str, record_errors: Mapping[int, str]) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class InvalidRecordsError(RecordErrors, InvalidRecordError):
    """Kafka's INVALID_RECORD with the records at fault, which the answer lists one by one (KIP-467)."""


class InvalidTimestampsError(RecordErrors, InvalidTimestampError):
    """Kafka's INVALID_TIMESTAMP with the records at fault."""


def check_batch(
    batch: Buffer, settings: LogSettings, now_ms: int, *, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> tuple[Buffer, BatchHeader]:
    """Check one batch as a producer sent it.

    Args:
        batch: the batch.
        settings: the options of its topic.
        now_ms: wall clock, milliseconds since the epoch.
        max_bytes: the largest size that its records may unpack to.

    Returns:
        The batch to be written, and its header. As in Kafka it is a corrected copy if the header had a wrong
        maximum timestamp, or LogAppendTime, which only the topic decides. A batch whose codec cannot be
        unpacked here is accepted unseen, unless the topic has rules for its records.

    Raises:
        BrokerResponseError: ``check_header`` or ``check_records`` refuses the batch.
        UnsupportedCompressionTypeError: the codec's library, which the topic's rules need, is missing.
        OverLimitError: the records unpack to more than ``max_bytes``, which is below the usual limit.
    """
    header = _usual_header(batch, settings, now_ms)
    if header is not None:
        return batch, header
    header = check_header(batch, settings)
    try:
        max_timestamp_ms = check_records(
            batch, header, settings, now_ms, max_bytes=max_bytes
        ).max_timestamp_ms
    except UnsupportedCodecError as error:
        # Without the codec only the header can be read. It holds the largest timestamp, but not the smallest
        # one, and it does not tell which records have a key.
        is_too_late = header.max_timestamp > now_ms + settings.message_timestamp_after_max_ms
        has_rules = is_too_late or settings.message_timestamp_before_max_ms < MAX_LONG
        if settings.is_compacted or (has_rules and settings.limits_timestamps):
            raise UnsupportedCompressionTypeError(str(error)) from error
        max_timestamp_ms = header.max_timestamp
    is_right = header.max_timestamp == max_timestamp_ms or settings.uses_log_append_time
    if is_right and not header.is_log_append_time:
        return batch, header
    return _put_right(batch, header, max_timestamp_ms)


def _usual_header(batch: Buffer, settings: LogSettings, now_ms: int) -> BatchHeader | None:
    """Return the header of a common, valid batch; None if it needs the full checks, which also explain."""
    if len(batch) > settings.max_message_bytes or len(batch) > settings.segment_bytes:
        return None  # refused for its size: do not compute its checksum
    found = usual_batch(batch)
    if found is None:
        return None
    fields, min_timestamp_ms, null_keys = found
    header = _NEW(BatchHeader, fields)
    if header.record_count > MAX_RECORDS or (null_keys and settings.is_compacted):
        return None
    if settings.limits_timestamps and not (
        now_ms - settings.message_timestamp_before_max_ms <= min_timestamp_ms
        and header.max_timestamp <= now_ms + settings.message_timestamp_after_max_ms
    ):
        return None
    return header


def check_header(batch: Buffer, settings: LogSettings) -> BatchHeader:
    """Check size, checksum and header fields of a batch, not its records; return its header.

    Raises:
        InvalidRecordError: this is not exactly one batch of format 2 that a client may write.
        CorruptMessageError: the batch is cut short, or its checksum is wrong.
        MessageTooLargeError: it is larger than ``max.message.bytes``.
        RecordListTooLargeError: it is larger than a segment.
        UnsupportedCompressionTypeError: the codec does not exist.
    """
    if len(batch) >= HEADER_BYTES and batch[MAGIC_AT] != MAGIC:
        raise InvalidRecordError(f"message format {batch[MAGIC_AT]} is not accepted, only {MAGIC}")
    try:
        header = parse_header(batch)
    except CorruptMessageError as error:
        raise _refusal(batch, error) from None
    # Unpacked once: this runs for every batch, and an attribute access costs more than a comparison.
    base_offset, length, _, _, _, attributes, _, _, _, producer_id, _, sequence, count = header
    size = LENGTH_END + length
    if size != len(batch):
        _refuse_size(size, len(batch))
    if base_offset != 0:
        raise InvalidRecordError(f"the base offset of a new batch is 0, not {base_offset}")
    if size > settings.max_message_bytes:  # before the checksum, which would be wasted
        check_size(size, settings)
    if not crc_ok(batch, 0, header):
        raise CorruptMessageError("the checksum of the batch does not fit its bytes")
    if count > MAX_RECORDS:
        raise InvalidRecordError(f"{count} records are too many for one batch; the limit is {MAX_RECORDS}")
    if not 0 <= attributes <= _LAST_CODEC or producer_id >= 0 > sequence:
        _check_attributes(header)
    if size > settings.segment_bytes:
        check_size(size, settings)
    return header


def check_records(
    batch: Buffer,
    header: BatchHeader,
    settings: LogSettings,
    now_ms: int,
    *,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    any_offsets: bool = False,
) -> ValidRecords:
    """Check the records of a batch; may run in a thread.

    Args:
        batch: the batch.
        header: what ``check_header`` returned.
        settings: the options of its topic.
        now_ms: wall clock, milliseconds since the epoch.
        max_bytes: the largest size that the records may unpack to.
        any_offsets: accept any offset deltas, because the records will be numbered again.

    Raises:
        InvalidRecordError: the records do not match the header or do not unpack.
        InvalidRecordsError: records lack a key, which a compacted topic demands.
        InvalidTimestampsError: a timestamp is outside the topic's limits.
        MessageTooLargeError: the records unpack to more than any batch may.
        OverLimitError: they unpack to more than ``max_bytes``, which is below the usual limit.
        UnsupportedCodecError: the codec's library is not installed.
    """
    try:
        valid = validate_records(batch, header, max_bytes=max_bytes, any_offsets=any_offsets)
    except OverLimitError as error:
        if max_bytes < MAX_DECOMPRESSED_BYTES:
            raise
        raise MessageTooLargeError(error.message) from None  # producers split a batch on this error
    if settings.looks_at_records:
        _check_rules(valid, header, settings, now_ms)
    return valid


def check_size(size: int, settings: LogSettings) -> None:
    """Check the size of a batch.

    Raises:
        MessageTooLargeError: the batch is larger than ``max.message.bytes``.
        RecordListTooLargeError: the batch is larger than a segment.
    """
    if size > settings.max_message_bytes:
        raise MessageTooLargeError(
            f"a batch of {size} bytes is above max.message.bytes={settings.max_message_bytes}"
        )
    if size > settings.segment_bytes:
        raise RecordListTooLargeError(
            f"a batch of {size} bytes is larger than a segment (segment.bytes={settings.segment_bytes})"
        )


def _refuse_size(size: int, found: int) -> NoReturn:
    if size > found:
        raise CorruptMessageError(f"the batch has {size} bytes, and only {found} came")
    raise InvalidRecordError(f"{found - size} bytes follow the batch; one batch is accepted at a time")


def _refusal(batch: Buffer, error: CorruptMessageError) -> BrokerResponseError:
    """Return the error for an impossible header.

    With a right checksum it is no damage, but a wrong client.
    """
    if len(batch) >= HEADER_BYTES:
        header = BatchHeader._make(HEADER.unpack_from(batch))
        if header.size_bytes == len(batch) and crc_ok(batch, 0, header):
            return InvalidRecordError(error.message)
    return error


def _check_attributes(header: BatchHeader) -> None:
    """Raise for attributes or a sequence number that a client may not use."""
    if header.is_control:
        raise InvalidRecordError("clients may not write control batches")
    if header.producer_id >= 0 > header.base_sequence:
        raise InvalidRecordError(f"producer {header.producer_id} sent a batch without a sequence number")
    if header.is_transactional and header.producer_id < 0:
        raise InvalidRecordError("a transactional batch needs a producer id")
    if header.attributes & CODEC_MASK > _LAST_CODEC:
        raise UnsupportedCompressionTypeError(f"codec {header.attributes & CODEC_MASK} does not exist")


def _check_rules(valid: ValidRecords, header: BatchHeader, settings: LogSettings, now_ms: int) -> None:
    """Check what the topic demands of each record: a key, a timestamp within its limits."""
    records, scan, _ = valid
    earliest_ms, latest_ms = -MAX_LONG - 1, MAX_LONG
    if settings.limits_timestamps:
        earliest_ms = max(earliest_ms, now_ms - settings.message_timestamp_before_max_ms)
        latest_ms = min(latest_ms, now_ms + settings.message_timestamp_after_max_ms)
    needs_key = settings.is_compacted
    is_timely = earliest_ms <= scan.min_timestamp_ms and scan.max_timestamp_ms <= latest_ms
    if is_timely and not (needs_key and scan.null_keys):
        return
    faulty = faulty_records(
        records,
        header.record_count,
        header.base_timestamp,
        needs_key=needs_key,
        earliest_ms=earliest_ms,
        latest_ms=latest_ms,
        most=_MAX_NAMED_RECORDS,
    )
    if not faulty:  # the record that seemed too early has no timestamp (-1)
        return
    texts = {
        index: "has no key, which a compacted topic demands"
        if timestamp_ms is None
        else f"timestamp {timestamp_ms} is not between {earliest_ms} and {latest_ms}"
        for index, timestamp_ms in faulty
    }
    first = f"record {faulty[0][0]}: {texts[faulty[0][0]]}"
    more = f"; {len(texts)} records are refused" if len(texts) > 1 else ""
    kind = InvalidRecordsError if all(each is None for _, each in faulty) else InvalidTimestampsError
    raise kind(first + more, texts)


def _put_right(batch: Buffer, header: BatchHeader, max_timestamp_ms: int) -> tuple[Buffer, BatchHeader]:
    """Return a copy with CreateTime and the right maximum timestamp, which retention relies on."""
    changed = bytearray(batch)
    INT16.pack_into(changed, ATTRIBUTES_AT, header.attributes & ~LOG_APPEND_TIME_BIT)
    INT64.pack_into(changed, MAX_TIMESTAMP_AT, max_timestamp_ms)
    stamp_crc(changed, 0, len(changed))
    return changed, parse_header(changed)
