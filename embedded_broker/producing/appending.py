"""Appends a produced batch to its log, or answers why not: for the handler and for the fast path.

Most batches are appended as the producer sent them; the log checks them in one short walk. The others are
validated first: they have to be unpacked, or compressed anew (``compression.type`` of the topic; by default,
'producer', every batch stays as its producer packed it). Validation touches nothing that belongs to the
broker's loop: a batch, its topic's options and the time go in, an error or the batch as it is stored comes
out. So it may run beside the loop (``execution/turns.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import attrs

from splashdam.model.broker_errors import (
    BrokerResponseError,
    ErrorCode,
    InvalidRecordError,
    KafkaStorageError,
    UnsupportedCompressionTypeError,
)
from splashdam.model.errors import KafkaConfigurationError, UnsupportedCodecError
from splashdam.model.values import Buffer, TopicPartition
from splashdam.record.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    Codec,
    parse_header,
)
from splashdam.record.compression import MAX_DECOMPRESSED_BYTES, Compression, likely_unpacked_bytes
from splashdam.record.reader import read_records
from splashdam.record.sealing import build_batch, seal_records
from splashdam.record.validation import ValidRecords
from splashdam.storage.append_checks import (
    RecordErrors,
    check_batch,
    check_header,
    check_records,
    check_size,
)
from splashdam.storage.settings import LogSettings
from splashdam.wire.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse

if TYPE_CHECKING:
    from splashdam.embedded_broker.topics.disk_failures import DiskFailures
    from splashdam.embedded_broker.topics.parking import FetchParking
    from splashdam.net.clock import Clock
    from splashdam.storage.log import AppendResult, Log
    from splashdam.storage.manager.log_manager import LogManager

ATTRIBUTES_LOW_BYTE = ATTRIBUTES_AT + 1
_PACKING_FACTOR, _SLOW_PACKING_FACTOR = 16, 256
"""Cost of compressing one byte, in bytes decompressed: at fast levels, and at slow ones."""
_FIRST_SLOW_ZSTD_LEVEL = 10
_FIRST_ZSTD_VERSION = 7
_ZSTD = int(Codec.ZSTD)


class TakesBatches(Protocol):
    """What an append needs of the broker; the attributes are those of `Broker`."""

    clock: Clock
    logs: LogManager
    parking: FetchParking
    disk_failures: DiskFailures


def check_attributes(batch: Buffer | None, version: int) -> Buffer:
    """Check that there is a batch, and that the request's version may carry it.

    Raises:
        BrokerResponseError: there is no batch, or the version is too old for its codec.
    """
    if batch is None or len(batch) < HEADER_BYTES:
        raise InvalidRecordError("the partition holds no record batch")
    if version < _FIRST_ZSTD_VERSION and batch[ATTRIBUTES_LOW_BYTE] & CODEC_MASK == _ZSTD:
        raise UnsupportedCompressionTypeError("zstd needs Produce version 7 or later")
    return batch


def append_batch(
    log: Log, batch: Buffer, broker: TakesBatches, validated: ValidatedBatch | None = None
) -> AppendResult:
    """Append a batch, and wake the fetches that wait for the partition.

    Args:
        log: of the partition.
        batch: as sent.
        broker: of the log.
        validated: the result of its validation; None: it is appended as sent.

    Raises:
        BrokerResponseError: the log refuses the batch, or the disk does not take it.
    """
    header = None
    if validated is not None:
        batch, header, _ = validated
    appended = log.append_as_leader(batch, now_ms=broker.clock.wall_ms(), header=header)
    if not appended.duplicate:
        is_visible = log.high_watermark == log.log_end_offset
        broker.parking.appended(log.topic_partition, len(batch), is_visible=is_visible)
    return appended


def refuse(
    answer: PartitionProduceResponse,
    topic_partition: TopicPartition,
    error: BrokerResponseError,
    broker: TakesBatches,
) -> None:
    """Fill in the answer for a batch that was not appended, or not synced or replicated as asked."""
    if isinstance(error, KafkaStorageError):
        broker.disk_failures.append_failed(topic_partition, error)
    answer.error_code = error.code
    answer.error_message = error.message  # does not name the partition: the answer does
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
    log = broker.logs.logs.get(topic_partition)
    if log is not None and _is_about_records(error):
        answer.log_start_offset = log.log_start_offset
    if isinstance(error, RecordErrors):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
            for index, text in error.record_errors.items()
        ]


def _is_about_records(error: BrokerResponseError) -> bool:
    """Return whether the error is about records: Kafka then adds the log start offset."""
    return isinstance(error, RecordErrors) or error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# --- validation of batches that are not appended as sent ---------------------------------------------------


class ValidatedBatch(NamedTuple):
    """A batch that has been validated, and may be appended.

    Attributes:
        batch: as it is stored.
        header: its header.
        settings: the topic's options that it was validated with; if they change, it is validated again.
    """

    batch: Buffer
    header: BatchHeader
    settings: LogSettings


def is_appended_as_sent(batch: Buffer, settings: LogSettings) -> bool:
    """Return whether a batch needs no decompression or compression: the log checks it in one short walk."""
    is_plain = len(batch) < HEADER_BYTES or not batch[ATTRIBUTES_LOW_BYTE] & CODEC_MASK
    return is_plain and settings.compression_type in ("producer", "uncompressed")


@attrs.frozen
class BatchValidation:
    """Decompresses, checks and perhaps compresses a batch that is not appended as sent; a `turns.Work`.

    Attributes:
        batch: as sent; its memory must not be reused until the work is done.
        settings: of the topic.
        now_ms: wall clock, in milliseconds since the epoch.
        size_bytes: see `turns.Work`.
    """

    batch: Buffer
    settings: LogSettings
    now_ms: int
    size_bytes: int

    @classmethod
    def of(cls, batch: Buffer, settings: LogSettings, now_ms: int) -> BatchValidation:
        """Make one for a batch with a whole header."""
        body, codec = memoryview(batch)[HEADER_BYTES:], batch[ATTRIBUTES_LOW_BYTE] & CODEC_MASK
        size_bytes = likely_unpacked_bytes(codec, body) * _packing_factor(batch, settings)
        return cls(batch, settings, now_ms, size_bytes)

    def do(self, max_bytes: int) -> ValidatedBatch:
        """Check the batch, and compress it again if need be.

        Raises:
            BrokerResponseError: the log would refuse the batch, or a codec's library is missing.
            OverLimitError: ``max_bytes`` is not enough, and below the final limit.
        """
        batch, settings = self.batch, self.settings
        # The limit of a turn or of a light place has to hold for the packing, too.
        if max_bytes < MAX_DECOMPRESSED_BYTES:
            max_bytes //= _packing_factor(batch, settings)
        if not _is_packed_anew(batch, settings):
            batch, header = check_batch(batch, settings, self.now_ms, max_bytes=max_bytes)
            return ValidatedBatch(batch, header, settings)
        packed = _packed_anew(batch, settings, self.now_ms, max_bytes)
        check_size(len(packed), settings)  # before the result is kept
        return ValidatedBatch(packed, parse_header(packed), settings)


def _packing_factor(batch: Buffer, settings: LogSettings) -> int:
    name = settings.compression_type
    packed = batch[ATTRIBUTES_LOW_BYTE] & CODEC_MASK
    if name in ("producer", "uncompressed") or packed == Codec[name.upper()]:
        return 1
    is_slow = name == "zstd" and settings.compression_zstd_level >= _FIRST_SLOW_ZSTD_LEVEL
    return _SLOW_PACKING_FACTOR if is_slow else _PACKING_FACTOR


def _packed_anew(batch: Buffer, settings: LogSettings, now_ms: int, max_bytes: int) -> bytes:
    header = check_header(batch, settings)
    try:
        compression = _compression_of(settings)
        valid = check_records(batch, header, settings, now_ms, max_bytes=max_bytes, any_offsets=True)
        return _repacked(batch, header, valid, compression)
    except (KafkaConfigurationError, UnsupportedCodecError) as error:
        raise UnsupportedCompressionTypeError(str(error)) from error


def _is_packed_anew(batch: Buffer, settings: LogSettings) -> bool:
    name = settings.compression_type
    if name == "producer":
        return False
    codec = Codec.NONE if name == "uncompressed" else Codec[name.upper()]
    return batch[ATTRIBUTES_LOW_BYTE] & CODEC_MASK != codec


def _compression_of(settings: LogSettings) -> Compression:
    levels = {
        "gzip": settings.compression_gzip_level if settings.compression_gzip_level > 0 else None,
        "lz4": settings.compression_lz4_level,
        "zstd": settings.compression_zstd_level,
    }
    name = settings.compression_type
    return Compression.parse("none" if name == "uncompressed" else name, levels.get(name))


def _repacked(batch: Buffer, header: BatchHeader, valid: ValidRecords, compression: Compression) -> bytes:
    """Return the same records with another codec; they are decoded only if they need new offsets."""
    if valid.scan.misplaced < 0:
        header = header._replace(
            attributes=header.attributes & ~LOG_APPEND_TIME_BIT, max_timestamp=valid.max_timestamp_ms
        )
        return seal_records(valid.records, header, compression)
    return build_batch(
        [(record.timestamp_ms, record.key, record.value, record.headers) for record in read_records(batch)],
        compression,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
