"""OffsetDelete 0: delete a group's offsets of topics that none of its members subscribes to."""

from __future__ import annotations

from collections.abc import Mapping

from splashdam.embedded_broker.execution.answers import Answer
from splashdam.embedded_broker.execution.turns import PARTITIONS_IN_A_UNIT, Steps, in_steps
from splashdam.embedded_broker.groups.group import Group
from splashdam.embedded_broker.groups.offset_records import OffsetKey
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.topics.internal_topics import Appended
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_for
from splashdam.model.log_text import quoted
from splashdam.model.values import TopicPartition
from splashdam.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


@handles(OffsetDeleteRequest, versions=range(1))
def offset_delete(request: OffsetDeleteRequest, context: RequestContext) -> Steps[Answer]:
    """Answer with a code for each partition: 86 if a member subscribes to its topic, 3 if it does not exist.

    As in Kafka a group outlives its last offset, until the next check for expired offsets.
    """
    groups, group_id = context.broker.groups, request.group_id
    existing: dict[TopicPartition, None] = {}
    try:
        _deletable(group_id, context)
        for topic in request.topics:
            yield 1
            for number, asked in enumerate(topic.partitions, 1):
                if number % PARTITIONS_IN_A_UNIT == 0:
                    yield 1
                where = TopicPartition(topic.name, asked.partition_index)
                if _is_there(where, context):
                    existing[where] = None
        group = _deletable(group_id, context)  # looked up again: it may have changed in an earlier turn
        codes = {each: _code(each, group) for each in existing}
        places = [each for each, code in codes.items() if code == ErrorCode.NONE]
        found = [each for each in places if each in group.offsets or each in group.open_transactions]
        keys = [OffsetKey(group_id, each) for each in found]
        context.broker.offsets.delete_offsets(groups.partition_of(group_id), keys, keeps_groups=True)
        appended = Appended()
        appended.add(groups.log_of(group_id))
    except BrokerResponseError as error:
        return OffsetDeleteResponse(error_code=error.code)
    answer = OffsetDeleteResponse()
    for topic in request.topics:
        yield 1
        answer.topics.append((yield from _answer(topic, codes)))
    return appended.answer(answer, lambda _: OffsetDeleteResponse(error_code=ErrorCode.NOT_COORDINATOR))


def _deletable(group_id: str, context: RequestContext) -> Group:
    """Return the group; one with members whose subscriptions are unknown keeps all offsets."""
    if not group_id:
        raise error_for(ErrorCode.INVALID_GROUP_ID, "the group's id is empty")
    group = context.broker.groups.find(group_id)
    if group is None:
        raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {quoted(group_id)}")
    if not group.is_empty and group.protocol_type != "consumer":
        raise error_for(ErrorCode.NON_EMPTY_GROUP, f"group {quoted(group_id)} has members")
    return group


def _is_there(where: TopicPartition, context: RequestContext) -> bool:
    topic = context.broker.topics.get(where.topic)
    return topic is not None and where.partition in topic.partitions


def _code(where: TopicPartition, group: Group) -> int:
    if group.is_subscribed_to(where.topic):
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return ErrorCode.NONE


def _answer(
    topic: OffsetDeleteRequestTopic, codes: Mapping[TopicPartition, int]
) -> Steps[OffsetDeleteResponseTopic]:
    def answered(asked: OffsetDeleteRequestPartition) -> OffsetDeleteResponsePartition:
        where = TopicPartition(topic.name, asked.partition_index)
        return OffsetDeleteResponsePartition(
            partition_index=asked.partition_index,
            error_code=codes.get(where, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        )

    return OffsetDeleteResponseTopic(
        name=topic.name, partitions=(yield from in_steps(topic.partitions, answered))
    )
