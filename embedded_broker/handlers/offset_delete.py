"""OffsetDelete 0: forgets what a group has committed for topics that none of its members reads."""

from __future__ import annotations

from collections.abc import Mapping

from splashdam.embedded_broker.groups.group import Group
from splashdam.embedded_broker.groups.offset_records import OffsetKey
from splashdam.embedded_broker.internal_topics import answer_when_safe
from splashdam.embedded_broker.registry import Answer, RequestContext, handles
from splashdam.model.broker_errors import error_for
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import BrokerResponseError
from splashdam.model.quoting import quoted
from splashdam.model.values import TopicPartition
from splashdam.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


@handles(OffsetDeleteRequest, versions=range(1))
def offset_delete(request: OffsetDeleteRequest, context: RequestContext) -> Answer:
    """Each partition has its own code: 86 where a member reads its topic, 3 where it is not there."""
    groups, group_id = context.broker.groups, request.group_id
    try:
        group = _deletable(group_id, context)
        codes = {
            TopicPartition(topic.name, asked.partition_index): _code(
                TopicPartition(topic.name, asked.partition_index), group, context
            )
            for topic in request.topics
            for asked in topic.partitions
        }
        places = [each for each, code in codes.items() if code == ErrorCode.NONE]
        found = [each for each in places if each in group.offsets or each in group.open_transactions]
        keys = [OffsetKey(group_id, each) for each in found]
        groups.offsets.bury_offsets(groups.partition_of(group_id), keys)
        log = groups.log_of(group_id)
    except BrokerResponseError as error:
        return OffsetDeleteResponse(error_code=error.code)
    answer = OffsetDeleteResponse(topics=[_answer(topic, codes) for topic in request.topics])
    return answer_when_safe(log, answer, lambda _: OffsetDeleteResponse(error_code=ErrorCode.NOT_COORDINATOR))


def _deletable(group_id: str, context: RequestContext) -> Group:
    """The group; one whose members do not say what they read keeps all as long as they are in."""
    if not group_id:
        raise error_for(ErrorCode.INVALID_GROUP_ID, "the group's id is empty")
    group = context.broker.groups.find(group_id)
    if group is None:
        raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {quoted(group_id)}")
    if not group.is_empty and group.protocol_type != "consumer":
        raise error_for(ErrorCode.NON_EMPTY_GROUP, f"group {quoted(group_id)} has members")
    return group


def _code(where: TopicPartition, group: Group, context: RequestContext) -> int:
    topic = context.broker.topics.get(where.topic)
    if topic is None or where.partition not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if group.is_subscribed_to(where.topic):
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return ErrorCode.NONE


def _answer(
    topic: OffsetDeleteRequestTopic, codes: Mapping[TopicPartition, int]
) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(
                partition_index=each.partition_index,
                error_code=codes[TopicPartition(topic.name, each.partition_index)],
            )
            for each in topic.partitions
        ],
    )
