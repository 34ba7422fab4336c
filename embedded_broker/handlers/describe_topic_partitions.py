"""DescribeTopicPartitions 0: topics by name and their partitions, a page at a time (KIP-966).

A page ends after so many partitions, and the next one begins at the cursor that it names. Lists are never
null, which would crash Java's kafka-topics.
"""

from __future__ import annotations

from collections.abc import Sequence

from splashdam.embedded_broker.execution.turns import PARTITIONS_IN_A_UNIT, Steps
from splashdam.embedded_broker.handlers.metadata import TOPIC_OPERATIONS, described_partition
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.acls import Operation, ResourceType
from splashdam.model.broker_errors import ErrorCode
from splashdam.model.values import TopicPartition
from splashdam.storage.topic_names import INTERNAL_TOPICS, is_topic_name
from splashdam.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

_MOST_PARTITIONS = 2_000
"""Partitions in a page at most: Kafka's ``max.request.partition.size.limit``."""


@handles(DescribeTopicPartitionsRequest, versions=range(1))
def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> Steps[DescribeTopicPartitionsResponse]:
    """Answer with one page of the topics that the client may describe; a cursor names no others."""
    asked = sorted({topic.name for topic in request.topics})
    cursor = request.cursor
    if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        return _refusal(asked)
    names = asked or [topic.name for topic in context.broker.topics.all()]
    first = 0
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
        first = cursor.partition_index if names and names[0] == cursor.topic_name else 0
    left = max(1, min(_MOST_PARTITIONS, request.response_partition_limit))
    return (yield from _page(names, first, left, context, is_all=not asked))


def _page(
    names: Sequence[str], first: int, left: int, context: RequestContext, *, is_all: bool
) -> Steps[DescribeTopicPartitionsResponse]:
    answer = DescribeTopicPartitionsResponse(next_cursor=None)
    for number, name in enumerate(names, 1):
        if is_all and not context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name):
            if number % PARTITIONS_IN_A_UNIT == 0:
                yield 1
            first = 0
            continue
        if not left:
            answer.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        described, end = _described(name, first, left, context)
        answer.topics.append(described)
        left -= len(described.partitions)
        yield 1 + len(described.partitions) // PARTITIONS_IN_A_UNIT
        first = 0
        if end is not None:
            answer.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    return answer


def _described(
    name: str, first: int, most: int, context: RequestContext
) -> tuple[DescribeTopicPartitionsResponseTopic, int | None]:
    """Return a topic with the partitions that fit, and the first partition that does not."""
    answer = DescribeTopicPartitionsResponseTopic(
        name=name, topic_authorized_operations=TOPIC_OPERATIONS, is_internal=name in INTERNAL_TOPICS
    )
    topic = context.broker.topics.get(name)
    if topic is None:
        answer.is_internal = False
        known = is_topic_name(name)
        answer.error_code = (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known else ErrorCode.INVALID_TOPIC_EXCEPTION
        )
        return answer, None
    answer.topic_id = topic.topic_id
    numbers = [number for number in topic.partitions if number >= first]
    answer.partitions = [_partition(TopicPartition(name, number), context) for number in numbers[:most]]
    return answer, numbers[most] if len(numbers) > most else None


def _partition(
    topic_partition: TopicPartition, context: RequestContext
) -> DescribeTopicPartitionsResponsePartition:
    known = described_partition(topic_partition, context.broker)
    return DescribeTopicPartitionsResponsePartition(
        error_code=known.error_code,
        partition_index=known.partition_index,
        leader_id=known.leader_id,
        leader_epoch=known.leader_epoch,
        replica_nodes=known.replica_nodes,
        isr_nodes=known.isr_nodes,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=known.offline_replicas,
    )


def _refusal(names: Sequence[str]) -> DescribeTopicPartitionsResponse:
    topics = [
        DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name)
        for name in names
    ]
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=None)
