"""WriteTxnMarkers 1–2: end transactions of other coordinators in partitions that this broker leads."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from splashdam.embedded_broker.execution.answers import Answer, Parked
from splashdam.embedded_broker.execution.turns import Steps, let_others
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.topics.internal_topics import sync_up_to, term_of, wait_safe
from splashdam.embedded_broker.transactions.markers import write_marker
from splashdam.model.broker_errors import BrokerResponseError
from splashdam.model.values import TopicPartition
from splashdam.storage.log import Log
from splashdam.storage.transaction_marker import TransactionMarker
from splashdam.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class _Due(NamedTuple):
    """A marker whose answer waits until the log is safe up to ``end_offset``."""

    result: WritableTxnMarkerPartitionResult
    log: Log
    end_offset: int
    term: int
    needs_sync: bool


@handles(WriteTxnMarkersRequest, versions=range(1, 3))
def write_txn_markers(request: WriteTxnMarkersRequest, context: RequestContext) -> Steps[Answer]:
    """Answer for each partition, after the syncs and replicas that its log requires."""
    due: list[_Due] = []
    answer = WriteTxnMarkersResponse()
    for marker in request.markers:
        of_marker = WritableTxnMarkerResult(producer_id=marker.producer_id)
        answer.markers.append(of_marker)
        written = set[TopicPartition]()  # a partition that is named again gets no second marker, as in Kafka
        for topic in marker.topics:
            of_topic = WritableTxnMarkerTopicResult(name=topic.name)
            of_marker.topics.append(of_topic)
            for partition in topic.partition_indexes:
                yield 1
                where = TopicPartition(topic.name, partition)
                if where not in written:
                    written.add(where)
                    of_topic.partitions.append(_write(where, marker, context, due))
    if not due:
        return answer

    async def when_safe() -> WriteTxnMarkersResponse:
        # All syncs before the first wait for replicas: consumers may see each marker already.
        for number, (_, log, end_offset, _, needs_sync) in enumerate(due, 1):
            await let_others(number)
            if needs_sync:
                with suppress(BrokerResponseError):  # raised again below
                    await sync_up_to(log, end_offset)
        for number, (result, log, end_offset, term, needs_sync) in enumerate(due, 1):
            await let_others(number)
            try:
                await wait_safe(log, end_offset, term, needs_sync=needs_sync)
            except BrokerResponseError as error:
                result.error_code = error.code
        return answer

    return Parked(when_safe)


def _write(
    topic_partition: TopicPartition,
    asked: WritableTxnMarker,
    context: RequestContext,
    due: list[_Due],
) -> WritableTxnMarkerPartitionResult:
    result = WritableTxnMarkerPartitionResult(partition_index=topic_partition.partition)
    marker = TransactionMarker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )
    try:
        log = write_marker(context.broker, topic_partition, marker)
    except BrokerResponseError as error:
        result.error_code = error.code
        return result
    if log.must_flush or log.high_watermark < log.log_end_offset:
        due.append(_Due(result, log, log.log_end_offset, term_of(log), log.must_flush))
    return result
