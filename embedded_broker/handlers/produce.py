"""Produce 3–11: appends one batch to each partition named; every check is ``Log.append_as_leader``'s.

ApiVersions names it from version 0: librdkafka before 2.11.1 switches compression off where 0 is missing
(apache/kafka#18727); a request below 3 closes the connection. Transactional requests are refused with 48.
"""

from __future__ import annotations

import logging
from functools import partial

from splashdam.embedded_broker.partitions import leader_log
from splashdam.embedded_broker.recompression import with_topic_codec
from splashdam.embedded_broker.registry import CloseConnectionError, Parked, RequestContext, handles
from splashdam.embedded_broker.storage.append_checks import RecordErrors
from splashdam.embedded_broker.storage.log import Log
from splashdam.embedded_broker.topic_configs import options_of
from splashdam.model.broker_errors import (
    InvalidRecordError,
    InvalidRequiredAcksError,
    InvalidTxnStateError,
    KafkaStorageError,
    UnsupportedCompressionTypeError,
)
from splashdam.model.errors import BrokerResponseError
from splashdam.model.values import Buffer, TopicPartition
from splashdam.record.batch import HEADER_BYTES
from splashdam.record.compression import Codec
from splashdam.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

_log = logging.getLogger(__name__)

_ATTRIBUTES_LOW_BYTE = 22
_FIRST_ZSTD_VERSION = 7
_CODEC_MASK, _TRANSACTIONAL_BIT = 0x07, 0x10


@handles(ProduceRequest, versions=range(3, 12), advertised_from=0)
def produce(request: ProduceRequest, context: RequestContext) -> ProduceResponse | Parked | None:
    """Appends, and answers with base offsets; with ``acks=0`` there is no answer.

    The answer waits for the flush that ``flush.messages`` asks for; those who wait together share it.

    Raises:
        CloseConnectionError: something failed and ``acks=0`` leaves no other way to say so (facts B7).
    """
    unsafe: list[tuple[Log, PartitionProduceResponse]] = []
    responses = [
        TopicProduceResponse(
            name=topic.name,
            partition_responses=[
                _append(TopicPartition(topic.name, data.index), data, request, context, unsafe)
                for data in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]
    if request.acks != 0:
        response = ProduceResponse(responses=responses)
        return Parked(partial(_flushed, response, unsafe)) if unsafe else response
    _close_on_error(responses)
    return None


def _close_on_error(responses: list[TopicProduceResponse]) -> None:
    for topic in responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                where = f"{topic.name}-{answer.index}"
                raise CloseConnectionError(f"{where}, acks=0: {answer.error_code} {answer.error_message}")


def _append(
    topic_partition: TopicPartition,
    data: PartitionProduceData,
    request: ProduceRequest,
    context: RequestContext,
    unsafe: list[tuple[Log, PartitionProduceResponse]],
) -> PartitionProduceResponse:
    broker = context.broker
    answer = PartitionProduceResponse(index=data.index, base_offset=-1)
    try:
        batch = _checked(data.records, request, context.version)
        log = leader_log(broker, topic_partition)
        settings, now_ms = options_of(log), broker.clock.wall_ms()
        batch = with_topic_codec(batch, settings, now_ms)
        appended = log.append_as_leader(batch, now_ms=now_ms)
        if log.must_flush:
            if request.acks == 0:
                log.flush()  # nobody waits who could hear of a failure later
            else:
                unsafe.append((log, answer))
    except KafkaStorageError as error:
        _log.error("cannot append to %s: %s", topic_partition, error)
        return _refused(answer, error)
    except BrokerResponseError as error:
        return _refused(answer, error)
    answer.base_offset = appended.base_offset
    answer.log_append_time_ms = appended.log_append_time_ms
    answer.log_start_offset = appended.log_start_offset
    if not appended.duplicate:
        broker.parking.appended(topic_partition, len(batch))
    return answer


async def _flushed(
    response: ProduceResponse, unsafe: list[tuple[Log, PartitionProduceResponse]]
) -> ProduceResponse:
    for log, answer in unsafe:
        try:
            await log.sync()
        except KafkaStorageError as error:
            _log.error("cannot flush %s: %s", log.topic_partition, error)
            answer.base_offset = -1
            _refused(answer, error)
    return response


def _checked(records: Buffer | None, request: ProduceRequest, version: int) -> Buffer:
    """Checks what the log cannot know: the request's acks, its version, its transactional id."""
    if request.acks not in (-1, 0, 1):
        raise InvalidRequiredAcksError(f"acks is {request.acks}; it must be 0, 1 or -1 (all)")
    if records is None or len(records) < HEADER_BYTES:
        raise InvalidRecordError("the partition holds no record batch")
    attributes = records[_ATTRIBUTES_LOW_BYTE]
    if request.transactional_id is not None or attributes & _TRANSACTIONAL_BIT:
        raise InvalidTxnStateError("this broker has no transaction coordinator yet")
    if version < _FIRST_ZSTD_VERSION and attributes & _CODEC_MASK == Codec.ZSTD:
        raise UnsupportedCompressionTypeError("zstd needs Produce version 7 or later")
    return records


def _refused(answer: PartitionProduceResponse, error: BrokerResponseError) -> PartitionProduceResponse:
    answer.error_code = error.code
    answer.error_message = error.message
    if isinstance(error, RecordErrors):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
            for index, text in error.record_errors.items()
        ]
    return answer
