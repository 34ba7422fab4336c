"""What a leader demands of a batch before it is written, in Kafka's order (LogValidator, UnifiedLog).

First what the header and the checksum tell, then the records: each batch of a producer is walked through once
(``record.validation``), and records are named only where some break a rule of their topic. What a follower
copies, and what the broker itself writes, is not checked again.
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
"""In one batch: a few compressed bytes may stand for millions, and some topics have each one looked at."""

_LAST_CODEC = int(Codec.ZSTD)
_NEW = tuple.__new__
_MAX_NAMED_RECORDS = 10_000  # a small batch can hold millions, and each is named with a text of its own


class RecordErrors(BrokerResponseError):
    """An error that names the records at fault.

    Attributes:
        record_errors: index of the record in its batch → what is wrong with it.
    """

    def __init__(self, message: str, record_errors: Mapping[int, str]) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class InvalidRecordsError(RecordErrors, InvalidRecordError):
    """Kafka's INVALID_RECORD with the records at fault, which a producer is told one by one (KIP-467)."""


class InvalidTimestampsError(RecordErrors, InvalidTimestampError):
    """Kafka's INVALID_TIMESTAMP with the records at fault."""


def check_batch(
    batch: Buffer, settings: LogSettings, now_ms: int, *, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> tuple[Buffer, BatchHeader]:
    """Checks one batch as a producer sent it.

    Args:
        batch: as it came.
        settings: of its topic.
        now_ms: wall clock, milliseconds since the epoch.
        max_bytes: what its records may unpack to.

    Returns:
        The batch as it may be written, with its header. It is the one that came, unless its header was wrong:
        it named another maximum timestamp than that of the records, or LogAppendTime, which is the topic's to
        say. Then it is a copy that is right, as in Kafka. A batch whose codec cannot be unpacked here is
        taken on trust, unless the topic has rules for its records.

    Raises:
        BrokerResponseError: what ``check_header`` and ``check_records`` refuse.
        UnsupportedCompressionTypeError: a library is missing that the topic's rules need.
        OverLimitError: the records unpack to more than ``max_bytes``, and that is below the usual limit.
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
        if settings.looks_at_records:
            raise UnsupportedCompressionTypeError(str(error)) from error
        max_timestamp_ms = header.max_timestamp
    is_right = header.max_timestamp == max_timestamp_ms or settings.uses_log_append_time
    if is_right and not header.is_log_append_time:
        return batch, header
    return _put_right(batch, header, max_timestamp_ms)


def _usual_header(batch: Buffer, settings: LogSettings, now_ms: int) -> BatchHeader | None:
    """Of a batch that is as most are and breaks no rule; others take the long way, which tells why."""
    if len(batch) > settings.max_message_bytes or len(batch) > settings.segment_bytes:
        return None  # its checksum is not worth its price
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
    """Checks what can be told of a batch without a look at its records, and returns its header.

    Raises:
        InvalidRecordError: it is not exactly one batch of format 2 as a client may write it.
        CorruptMessageError: it is not whole, or its checksum is wrong.
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
    # Taken apart once: this is asked of every batch, and an attribute costs more than a comparison.
    base_offset, length, _, _, _, attributes, _, _, _, producer_id, _, sequence, count = header
    size = LENGTH_END + length
    if size != len(batch):
        _refuse_size(size, len(batch))
    if base_offset != 0:
        raise InvalidRecordError(f"the base offset of a new batch is 0, not {base_offset}")
    if size > settings.max_message_bytes:  # the checksum of such a batch is not worth its price
        check_size(size, settings)
    if not crc_ok(batch, 0, header):
        raise CorruptMessageError("the checksum of the batch does not fit its bytes")
    if count > MAX_RECORDS:
        raise InvalidRecordError(f"{count} records are too many for one batch; {MAX_RECORDS} are accepted")
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
    """Checks the records of a batch. It may run beside the loop.

    Args:
        batch: as it came.
        header: what ``check_header`` returned.
        settings: of its topic.
        now_ms: wall clock, milliseconds since the epoch.
        max_bytes: what the records may unpack to.
        any_offsets: the records are about to be numbered anew.

    Raises:
        InvalidRecordError: the records are not what the header says, do not unpack, or lack a key that the
            topic demands. The last of these is an InvalidRecordsError.
        InvalidTimestampsError: a timestamp is outside the topic's limits.
        MessageTooLargeError: the records unpack to more than any batch may.
        OverLimitError: they unpack to more than ``max_bytes``, and that is below the usual limit.
        UnsupportedCodecError: the codec's library is not installed.
    """
    try:
        valid = validate_records(batch, header, max_bytes=max_bytes, any_offsets=any_offsets)
    except OverLimitError as error:
        if max_bytes < MAX_DECOMPRESSED_BYTES:
            raise
        raise MessageTooLargeError(error.message) from None  # a producer splits it
    if settings.looks_at_records:
        _check_rules(valid, header, settings, now_ms)
    return valid


def check_size(size: int, settings: LogSettings) -> None:
    """Checks the size of a batch.

    Raises:
        MessageTooLargeError: it is larger than ``max.message.bytes``.
        RecordListTooLargeError: it is larger than a segment.
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
        raise CorruptMessageError(f"{found} bytes are there of a batch of {size}")
    raise InvalidRecordError(f"{found - size} bytes follow the batch; one batch is accepted at a time")


def _refusal(batch: Buffer, error: CorruptMessageError) -> BrokerResponseError:
    """Of a batch whose header cannot be: with a right checksum the client meant it so."""
    if len(batch) >= HEADER_BYTES:
        header = BatchHeader._make(HEADER.unpack_from(batch))
        if header.size_bytes == len(batch) and crc_ok(batch, 0, header):
            return InvalidRecordError(error.message)
    return error


def _check_attributes(header: BatchHeader) -> None:
    """Of a batch whose attributes are more than a codec's number, or that lacks a sequence number."""
    if header.is_control:
        raise InvalidRecordError("clients may not write control batches")
    if header.producer_id >= 0 > header.base_sequence:
        raise InvalidRecordError(f"producer {header.producer_id} sent a batch without a sequence number")
    if header.is_transactional and header.producer_id < 0:
        raise InvalidRecordError("a transactional batch needs a producer id")
    if header.attributes & CODEC_MASK > _LAST_CODEC:
        raise UnsupportedCompressionTypeError(f"there is no codec {header.attributes & CODEC_MASK}")


def _check_rules(valid: ValidRecords, header: BatchHeader, settings: LogSettings, now_ms: int) -> None:
    """What a topic demands of each record: a key, a timestamp within its limits."""
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
    if not faulty:  # what seemed too early has no timestamp
        return
    texts = {
        index: "has no key, which a compacted topic demands"
        if timestamp_ms is None
        else f"timestamp {timestamp_ms} is not within {earliest_ms} and {latest_ms}"
        for index, timestamp_ms in faulty
    }
    first = f"record {faulty[0][0]}: {texts[faulty[0][0]]}"
    more = f"; {len(texts)} records are refused" if len(texts) > 1 else ""
    kind = InvalidRecordsError if all(each is None for _, each in faulty) else InvalidTimestampsError
    raise kind(first + more, texts)


def _put_right(batch: Buffer, header: BatchHeader, max_timestamp_ms: int) -> tuple[Buffer, BatchHeader]:
    """A copy with this maximum, which retention and look-ups by time believe, and the records' own times."""
    changed = bytearray(batch)
    INT16.pack_into(changed, ATTRIBUTES_AT, header.attributes & ~LOG_APPEND_TIME_BIT)
    INT64.pack_into(changed, MAX_TIMESTAMP_AT, max_timestamp_ms)
    stamp_crc(changed, 0, len(changed))
    return changed, parse_header(changed)
