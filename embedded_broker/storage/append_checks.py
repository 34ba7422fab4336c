"""What a leader demands of a batch before it is written, in Kafka's order (LogValidator, UnifiedLog).

Headers alone are looked at; records are scanned only where a rule is about each of them (keys on compacted
topics, limits on timestamps), and decoded only to name those at fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import NoReturn

from splashdam.embedded_broker.storage.settings import LogSettings
from splashdam.model.broker_errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    RecordListTooLargeError,
    UnsupportedCompressionTypeError,
)
from splashdam.model.errors import BrokerResponseError, UnsupportedCodecError
from splashdam.model.values import Buffer
from splashdam.record.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    crc_ok,
    parse_header,
)
from splashdam.record.compression import MAX_DECOMPRESSED_BYTES, Codec
from splashdam.record.reader import RecordScan, iter_records, scan_batch

MAX_RECORDS = 500_000
"""In one batch: a few compressed bytes may stand for millions, and some topics have each one looked at."""

_LAST_CODEC = int(Codec.ZSTD)
_MIN_RECORD_BYTES = 7  # length, attributes, two deltas, no key, no value, no headers
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
    """Some records of the batch are not acceptable."""


class InvalidTimestampsError(RecordErrors, InvalidTimestampError):
    """Some timestamps of the batch are not acceptable."""


def check_batch(
    batch: Buffer, settings: LogSettings, now_ms: int, *, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> BatchHeader:
    """Checks one batch as a producer sent it, and returns its header.

    Args:
        batch: as it came.
        settings: of its topic.
        now_ms: wall clock, milliseconds since the epoch.
        max_bytes: what its records may unpack to, where they are looked at.

    Raises:
        InvalidRecordError: it is not exactly one batch of format 2 as a client may write it.
        CorruptMessageError: it is not whole, or its checksum is wrong.
        MessageTooLargeError: it is larger than ``max.message.bytes``.
        RecordListTooLargeError: it is larger than a segment.
        InvalidTimestampError: a timestamp is outside the topic's limits.
        UnsupportedCompressionTypeError: the codec does not exist.
        OverLimitError: its records unpack to more than ``max_bytes``.
    """
    if len(batch) >= HEADER_BYTES and batch[MAGIC_AT] != MAGIC:
        raise InvalidRecordError(f"message format {batch[MAGIC_AT]} is not accepted, only {MAGIC}")
    header = parse_header(batch)
    size = LENGTH_END + header.batch_length
    if size != len(batch):
        _refuse_size(size, len(batch))
    if header.base_offset != 0:
        raise InvalidRecordError(f"the base offset of a new batch is 0, not {header.base_offset}")
    if size > settings.max_message_bytes:  # the checksum of such a batch is not worth its price
        check_size(size, settings)
    if not crc_ok(batch, 0, header):
        raise CorruptMessageError("the checksum of the batch does not fit its bytes")
    _check_header(header, size)
    if settings.looks_at_records:
        _check_records(batch, settings, now_ms, max_bytes)
    if size > settings.segment_bytes:
        check_size(size, settings)
    return header


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


def _check_header(header: BatchHeader, size: int) -> None:
    # Taken apart once: this is asked of every batch, and an attribute costs more than a comparison.
    _, _, _, _, _, attributes, last_delta, _, _, producer_id, _, sequence, count = header
    if not (count == last_delta + 1 <= MAX_RECORDS and count * _MIN_RECORD_BYTES <= size - HEADER_BYTES):
        _check_count(header)
    if not 0 <= attributes <= _LAST_CODEC or producer_id >= 0 > sequence:
        _check_attributes(header)


def _check_count(header: BatchHeader) -> None:
    if header.record_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"the batch has {header.record_count} records, but its last offset delta is "
            f"{header.last_offset_delta}"
        )
    if header.record_count > MAX_RECORDS:
        raise InvalidRecordError(
            f"{header.record_count} records are too many for one batch; {MAX_RECORDS} are accepted"
        )
    room = header.size_bytes - HEADER_BYTES
    if not header.attributes & CODEC_MASK and header.record_count * _MIN_RECORD_BYTES > room:
        raise InvalidRecordError(f"{header.record_count} records do not fit into {room} bytes")


def _check_attributes(header: BatchHeader) -> None:
    """Of a batch whose attributes are more than a codec's number, or that lacks a sequence number."""
    if header.is_control:
        raise InvalidRecordError("clients may not write control batches")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecordError(f"producer {header.producer_id} sent a batch without a sequence number")
    if header.is_transactional and header.producer_id < 0:
        raise InvalidRecordError("a transactional batch needs a producer id")
    if header.attributes & CODEC_MASK > _LAST_CODEC:
        raise UnsupportedCompressionTypeError(f"there is no codec {header.attributes & CODEC_MASK}")
    if header.is_log_append_time:
        raise InvalidTimestampError("LogAppendTime is set by the broker, not by its clients")


def _check_records(batch: Buffer, settings: LogSettings, now_ms: int, max_bytes: int) -> None:
    try:
        scan = scan_batch(batch, max_bytes=max_bytes)
    except UnsupportedCodecError as error:
        raise UnsupportedCompressionTypeError(str(error)) from error
    if settings.is_compacted and scan.null_keys:
        raise InvalidRecordsError("a compacted topic accepts no record without a key", _keyless(batch))
    if settings.limits_timestamps and not _all_timely(scan, settings, now_ms):
        untimely = _untimely(batch, settings, now_ms)
        if untimely:
            raise InvalidTimestampsError(
                "a timestamp is further from the broker's clock than the topic allows", untimely
            )


def _keyless(batch: Buffer) -> dict[int, str]:
    keyless = (index for index, record in enumerate(iter_records(batch)) if record.key is None)
    return dict.fromkeys(islice(keyless, _MAX_NAMED_RECORDS), "has no key")


def _untimely(batch: Buffer, settings: LogSettings, now_ms: int) -> dict[int, str]:
    untimely = (
        (index, f"timestamp {record.timestamp_ms} is outside the topic's limits")
        for index, record in enumerate(iter_records(batch))
        if not _is_timely(record.timestamp_ms, settings, now_ms)
    )
    return dict(islice(untimely, _MAX_NAMED_RECORDS))


def _all_timely(scan: RecordScan, settings: LogSettings, now_ms: int) -> bool:
    """Whether smallest and largest timestamp say so; a negative one is no timestamp, and says nothing."""
    return scan.min_timestamp_ms >= 0 and all(
        _is_timely(timestamp_ms, settings, now_ms)
        for timestamp_ms in (scan.min_timestamp_ms, scan.max_timestamp_ms)
    )


def _is_timely(timestamp_ms: int, settings: LogSettings, now_ms: int) -> bool:
    if timestamp_ms < 0:
        return True
    age_ms = now_ms - timestamp_ms
    return -settings.message_timestamp_after_max_ms <= age_ms <= settings.message_timestamp_before_max_ms
