"""OffsetForLeaderEpoch 2–4: the end offset of a leader epoch in the leader's log.

The answer names the largest epoch known that is not above the one asked for; -1 and -1, without an error,
where the leader knows none. Followers ask where to cut their logs, consumers whether theirs was cut.
"""

from __future__ import annotations

from splashdam.embedded_broker.execution.turns import Steps
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.topics.partitions import check_leader_epoch, leader_log
from splashdam.model.broker_errors import BrokerResponseError
from splashdam.model.values import TopicPartition
from splashdam.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


@handles(OffsetForLeaderEpochRequest, versions=range(2, 5))
def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> Steps[OffsetForLeaderEpochResponse]:
    """Answer with an end offset or an error code for each partition."""
    answer = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        result = OffsetForLeaderTopicResult(topic=topic.topic)
        answer.topics.append(result)
        for asked in topic.partitions:
            yield 1
            result.partitions.append(_partition(topic.topic, asked, context))
    return answer


def _partition(topic: str, asked: OffsetForLeaderPartition, context: RequestContext) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition)
    try:
        log = leader_log(context.broker, TopicPartition(topic, asked.partition))
        check_leader_epoch(log, asked.current_leader_epoch)
    except BrokerResponseError as error:
        answer.error_code = error.code
        return answer
    answer.leader_epoch, answer.end_offset = log.end_of_epoch(asked.leader_epoch)
    return answer
