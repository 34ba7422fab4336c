"""WriteTxnMarkers 1–2: another coordinator ends transactions in partitions of this broker."""

from __future__ import annotations

from splashdam.embedded_broker.internal_topics import term_of, wait_safe
from splashdam.embedded_broker.registry import Parked, RequestContext, handles
from splashdam.embedded_broker.storage.log import Log
from splashdam.embedded_broker.storage.transaction_marker import TransactionMarker
from splashdam.embedded_broker.transactions.markers import write_marker
from splashdam.model.errors import BrokerResponseError
from splashdam.model.values import TopicPartition
from splashdam.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


@handles(WriteTxnMarkersRequest, versions=range(1, 3))
def write_txn_markers(
    request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse | Parked:
    """One result for each partition; behind the sync of logs that promise it, and their replicas."""
    written: list[tuple[WritableTxnMarkerPartitionResult, Log]] = []
    answer = WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            _write(TopicPartition(topic.name, partition), marker, context, written)
                            for partition in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
    due = [
        (result, log, log.log_end_offset, term_of(log), log.must_flush)
        for result, log in written
        if log.must_flush or log.high_watermark < log.log_end_offset
    ]
    if not due:
        return answer

    async def when_safe() -> WriteTxnMarkersResponse:
        for result, log, end_offset, term, needs_sync in due:
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
    written: list[tuple[WritableTxnMarkerPartitionResult, Log]],
) -> WritableTxnMarkerPartitionResult:
    result = WritableTxnMarkerPartitionResult(partition_index=topic_partition.partition)
    marker = TransactionMarker(
        asked.producer_id, asked.producer_epoch, asked.transaction_result, asked.coordinator_epoch
    )
    try:
        written.append((result, write_marker(context.broker, topic_partition, marker)))
    except BrokerResponseError as error:
        result.error_code = error.code
    return result
