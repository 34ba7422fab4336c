"""ListOffsets 1–10: offsets by timestamp, and the special ones (facts B26).

-1 latest (high watermark), -2 earliest, -3 the record with the largest timestamp (v7+), -4 earliest on this
disk (v8+), -5 latest in tiered storage (v9+; always -1 here). With read_committed the latest is the last
stable offset, and a record by time that is not below it counts as not there.
"""

from __future__ import annotations

from splashdam.embedded_broker.partitions import check_leader_epoch, leader_log
from splashdam.embedded_broker.registry import RequestContext, handles
from splashdam.embedded_broker.storage.log import EARLIEST, LATEST, MAX_TIMESTAMP, Log
from splashdam.embedded_broker.storage.timestamp_lookup import TimestampOffset
from splashdam.model.broker_errors import UnsupportedVersionError
from splashdam.model.errors import BrokerResponseError
from splashdam.model.values import IsolationLevel, TopicPartition
from splashdam.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_EARLIEST_LOCAL, _LATEST_TIERED = -4, -5
_SPECIAL_SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9}
_NEVER = 1 << 15
_FIRST_EPOCH_VERSION = 4


@handles(ListOffsetsRequest, versions=range(1, 11))
def list_offsets(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """One offset for each partition asked about; errors stand beside the partition."""
    read_committed = request.isolation_level == IsolationLevel.READ_COMMITTED
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _partition(
                        TopicPartition(topic.name, asked.partition_index), asked, read_committed, context
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _partition(
    topic_partition: TopicPartition,
    asked: ListOffsetsPartition,
    read_committed: bool,
    context: RequestContext,
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    try:
        log = leader_log(context.broker, topic_partition)
        check_leader_epoch(log, asked.current_leader_epoch)
        found = _find(log, asked.timestamp, read_committed, context.version)
    except BrokerResponseError as error:
        answer.error_code = error.code
        return answer
    answer.offset, answer.timestamp = found.offset, found.timestamp_ms
    if context.version >= _FIRST_EPOCH_VERSION:
        answer.leader_epoch = found.leader_epoch
    return answer


def _find(log: Log, timestamp_ms: int, read_committed: bool, version: int) -> TimestampOffset:
    if timestamp_ms < 0 and version < _SPECIAL_SINCE.get(timestamp_ms, _NEVER):
        raise UnsupportedVersionError(f"timestamp {timestamp_ms} has no meaning in version {version}")
    if timestamp_ms == _LATEST_TIERED:
        return TimestampOffset(-1, -1, -1)
    if timestamp_ms == _EARLIEST_LOCAL:
        timestamp_ms = EARLIEST
    found = log.offset_for_timestamp(timestamp_ms)
    if not read_committed or timestamp_ms == EARLIEST:
        return found
    if timestamp_ms == LATEST:
        return found._replace(offset=log.last_stable_offset)
    return found if found.offset < log.last_stable_offset else TimestampOffset(-1, -1, -1)
