"""Appends one batch to a log that this broker leads, or says why not: for both ways of a Produce."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from splashdam.embedded_broker.producing.admission import ATTRIBUTES_LOW_BYTE, Admitted
from splashdam.model.broker_errors import (
    BrokerResponseError,
    ErrorCode,
    InvalidRecordError,
    KafkaStorageError,
    UnsupportedCompressionTypeError,
)
from splashdam.model.values import Buffer, TopicPartition
from splashdam.record.batch import CODEC_MASK, HEADER_BYTES, Codec
from splashdam.storage.append_checks import RecordErrors
from splashdam.wire.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse

if TYPE_CHECKING:
    from splashdam.embedded_broker.topics.disk_troubles import DiskTroubles
    from splashdam.embedded_broker.topics.parking import FetchParking
    from splashdam.net.clock import Clock
    from splashdam.storage.log import AppendResult, Log
    from splashdam.storage.manager.log_manager import LogManager

_FIRST_ZSTD_VERSION = 7
_ZSTD = int(Codec.ZSTD)


class TakesBatches(Protocol):
    """What an append needs of the broker; the attributes are those of `Broker`."""

    clock: Clock
    logs: LogManager
    parking: FetchParking
    disk_troubles: DiskTroubles


def check_attributes(batch: Buffer | None, version: int) -> Buffer:
    """Checks what the log cannot know: whether the request's version may carry such a batch.

    Raises:
        BrokerResponseError: there is no batch, or it uses a codec before its time.
    """
    if batch is None or len(batch) < HEADER_BYTES:
        raise InvalidRecordError("the partition holds no record batch")
    if version < _FIRST_ZSTD_VERSION and batch[ATTRIBUTES_LOW_BYTE] & CODEC_MASK == _ZSTD:
        raise UnsupportedCompressionTypeError("zstd needs Produce version 7 or later")
    return batch


def append_batch(
    log: Log, batch: Buffer, broker: TakesBatches, admitted: Admitted | None = None
) -> AppendResult:
    """Appends one batch, and tells the fetches that wait for the partition.

    Args:
        log: of its partition.
        batch: as it came.
        broker: of the log.
        admitted: what its admission made of it, unless it is taken as it is.

    Raises:
        BrokerResponseError: the log refuses the batch, or the disk does not take it.
    """
    header = None
    if admitted is not None:
        batch, header, _ = admitted
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
    """Turns the answer into that of a batch that was not appended, or is not as safe as was asked."""
    if isinstance(error, KafkaStorageError):
        broker.disk_troubles.refused(topic_partition, error)
    answer.error_code = error.code
    answer.error_message = error.message  # without the partition: the answer is in its place
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
    """Whether a log has looked into a batch and refused it: Kafka says then where the log starts."""
    return isinstance(error, RecordErrors) or error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
