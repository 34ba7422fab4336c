"""ListOffsets 1–11: offsets by timestamp, and the special ones.

Special timestamps: -1 latest (the high watermark), -2 earliest, -3 the record with the largest timestamp
(v7+), -4 earliest on local disk (v8+), -5 latest in tiered storage (v9+), -6 earliest pending upload (v11+).
There is no tiered storage, so the last two give -1. The latest offset is the last stable offset for
read_committed, and the log end offset for other brokers; records at or above it are not found by time. After
an election the latest offset is not available (78) until the high watermark has reached the offset at which
the leader's epoch began: an earlier leader may have told consumers a higher one.

A look-up by time may go through many batches, and unpack them: it takes as many turns as it needs
(``execution/turns.py``).
"""

from __future__ import annotations

from collections import Counter

from splashdam.embedded_broker.execution.turns import Steps
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.topics.partitions import check_leader_epoch, hosted_log, leader_log
from splashdam.model.broker_errors import (
    BrokerResponseError,
    ErrorCode,
    InvalidRequestError,
    LeaderNotAvailableError,
    UnsupportedVersionError,
    error_for,
)
from splashdam.model.log_text import quoted
from splashdam.model.values import IsolationLevel, TopicPartition
from splashdam.storage.log import EARLIEST, LATEST, MAX_TIMESTAMP, Log
from splashdam.storage.timestamp_lookup import TimestampOffset
from splashdam.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING_UPLOAD = -4, -5, -6
_SPECIAL_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}
_CONSUMER, _DEBUGGER = -1, -2
"""Replica ids that are not those of brokers; a debugger may ask any replica."""
_NOT_FOUND = TimestampOffset(-1, -1, -1)
_NEVER = 1 << 15
_FIRST_EPOCH_VERSION = 4
_FIRST_NOT_AVAILABLE_VERSION = 5


@handles(ListOffsetsRequest, versions=range(1, 12))
def list_offsets(request: ListOffsetsRequest, context: RequestContext) -> Steps[ListOffsetsResponse]:
    """Answer with an offset or an error code for each partition."""
    times = Counter(
        (topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions
    )
    topics: list[ListOffsetsTopicResponse] = []
    for topic in request.topics:
        answers: list[ListOffsetsPartitionResponse] = []
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        for asked in topic.partitions:
            yield 1
            where = TopicPartition(topic.name, asked.partition_index)
            is_repeated = times[topic.name, asked.partition_index] > 1
            answers.append((yield from _partition(where, asked, request, context, is_repeated=is_repeated)))
    return ListOffsetsResponse(topics=topics)


def _partition(
    topic_partition: TopicPartition,
    asked: ListOffsetsPartition,
    request: ListOffsetsRequest,
    context: RequestContext,
    *,
    is_repeated: bool,
) -> Steps[ListOffsetsPartitionResponse]:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    try:
        if is_repeated:
            raise InvalidRequestError(f"{quoted(str(topic_partition))} is asked about more than once")
        if asked.timestamp < 0 and context.version < _SPECIAL_SINCE.get(asked.timestamp, _NEVER):
            raise UnsupportedVersionError(
                f"timestamp {asked.timestamp} has no meaning in version {context.version}"
            )
        log = _log_asked(topic_partition, asked, request, context)
        try:
            found = yield from _find(log, asked.timestamp, request, context.version)
        finally:  # a search may take several turns, in which another broker may have begun to lead
            _log_asked(topic_partition, asked, request, context)
    except BrokerResponseError as error:
        answer.error_code = error.code
        return answer
    answer.offset, answer.timestamp = found.offset, found.timestamp_ms
    if context.version >= _FIRST_EPOCH_VERSION:
        answer.leader_epoch = found.leader_epoch
    return answer


def _log_asked(
    topic_partition: TopicPartition,
    asked: ListOffsetsPartition,
    request: ListOffsetsRequest,
    context: RequestContext,
) -> Log:
    find_log = hosted_log if request.replica_id == _DEBUGGER else leader_log
    log = find_log(context.broker, topic_partition)
    check_leader_epoch(log, asked.current_leader_epoch)
    return log


def _find(log: Log, timestamp_ms: int, request: ListOffsetsRequest, version: int) -> Steps[TimestampOffset]:
    if timestamp_ms in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        return _NOT_FOUND
    if timestamp_ms == _EARLIEST_LOCAL:
        timestamp_ms = EARLIEST
    is_consumer = request.replica_id == _CONSUMER
    if not is_consumer:
        up_to = log.log_end_offset
    elif request.isolation_level == IsolationLevel.READ_COMMITTED:
        up_to = log.last_stable_offset
    else:
        up_to = log.high_watermark
    found = yield from log.search_timestamp(timestamp_ms, up_to=up_to)
    is_at_end = timestamp_ms == LATEST or found == _NOT_FOUND
    if is_consumer and is_at_end and log.leader_epoch_start > log.high_watermark:
        if version < _FIRST_NOT_AVAILABLE_VERSION:
            raise LeaderNotAvailableError
        raise error_for(ErrorCode.OFFSET_NOT_AVAILABLE)
    return found
