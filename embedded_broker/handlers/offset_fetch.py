"""OffsetFetch 1–10: the committed offsets of groups; several groups from version 8 on, topics by id in 10.

A partition without a committed offset is answered with -1 and no error, also for an unknown group.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from splashdam.embedded_broker.execution.turns import PARTITIONS_IN_A_UNIT, Steps, in_steps, parted
from splashdam.embedded_broker.groups.group import NOBODY, Group, Member
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode
from splashdam.model.values import TopicPartition
from splashdam.wire.fields import NO_UUID
from splashdam.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_FIRST_SEVERAL_GROUPS_VERSION = 8
_FIRST_GROUP_ERROR_VERSION = 2
_FIRST_TOPIC_ID_VERSION = 10


@handles(OffsetFetchRequest, versions=range(1, 11))
def offset_fetch(request: OffsetFetchRequest, context: RequestContext) -> Steps[OffsetFetchResponse]:
    """Answer for each partition asked for, or with all offsets of the group."""
    if context.version >= _FIRST_SEVERAL_GROUPS_VERSION:
        answer = OffsetFetchResponse()
        for each in request.groups:
            yield 1
            answer.groups.append((yield from _group_answer(each, request.require_stable, context)))
        return answer
    code, found = yield from _found(request.group_id, request.topics, request.require_stable, context)
    answer = OffsetFetchResponse(error_code=code)
    for name, offsets in found.items():
        yield 1
        partitions = yield from in_steps(offsets, lambda each: OffsetFetchResponsePartition(**each._asdict()))
        answer.topics.append(OffsetFetchResponseTopic(name=name, partitions=partitions))
    return answer


class _Offset(NamedTuple):
    """The answer for one partition; both structs of the message have these fields."""

    partition_index: int
    committed_offset: int = -1
    committed_leader_epoch: int = -1
    metadata: str = ""
    error_code: int = 0


def _group_answer(
    asked: OffsetFetchRequestGroup, require_stable: bool, context: RequestContext
) -> Steps[OffsetFetchResponseGroup]:
    topics, by_id = asked.topics, context.broker.topics.by_id
    unknown: list[OffsetFetchRequestTopics] = []
    if context.version >= _FIRST_TOPIC_ID_VERSION:
        if topics is not None:
            unknown, topics = yield from parted(topics, lambda each: by_id(each.topic_id) is None)
        for topic in topics or ():
            known = by_id(topic.topic_id)
            topic.name = "" if known is None else known.name
    member = Member(asked.member_epoch, asked.member_id or "")
    code, found = yield from _found(asked.group_id, topics, require_stable, context, member)
    answer = OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code)
    for name, offsets in found.items():
        known = context.broker.topics.get(name)
        if known is not None or context.version < _FIRST_TOPIC_ID_VERSION:
            topic_id = NO_UUID if known is None else known.topic_id
            answer.topics.append((yield from _topic(name, topic_id, offsets)))
    for each in [] if code else unknown:
        missing = (_Offset(index, error_code=ErrorCode.UNKNOWN_TOPIC_ID) for index in each.partition_indexes)
        answer.topics.append((yield from _topic("", each.topic_id, missing)))
    return answer


def _topic(name: str, topic_id: bytes, offsets: Iterable[_Offset]) -> Steps[OffsetFetchResponseTopics]:
    yield 1
    partitions = yield from in_steps(offsets, lambda each: OffsetFetchResponsePartitions(**each._asdict()))
    return OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions)


def _found(
    group_id: str,
    asked: Iterable[OffsetFetchRequestTopic] | Iterable[OffsetFetchRequestTopics] | None,
    require_stable: bool,
    context: RequestContext,
    member: Member = NOBODY,
) -> Steps[tuple[int, dict[str, list[_Offset]]]]:
    """Return the code of the whole group, and offsets by topic."""
    refused = ErrorCode.NONE
    try:
        group = context.broker.groups.find(group_id)
        if group is not None and group.membership is not None:
            group.membership.check_may_fetch(member)
    except BrokerResponseError as error:
        if context.version >= _FIRST_GROUP_ERROR_VERSION:
            return error.code, {}
        # Version 1 has no code for the whole group, so each partition gets it.
        group, refused = None, ErrorCode(error.code)
    wanted: Iterable[TopicPartition]
    if asked is None:
        wanted = sorted(group.offsets) if group is not None else ()
    else:
        wanted = (TopicPartition(topic.name, index) for topic in asked for index in topic.partition_indexes)
    topics: dict[str, list[_Offset]] = {}
    for number, topic_partition in enumerate(wanted):
        if number % PARTITIONS_IN_A_UNIT == PARTITIONS_IN_A_UNIT - 1:
            yield 1
        if refused:
            offset = _Offset(topic_partition.partition, error_code=refused)
        else:
            offset = _offset_of(group, topic_partition, require_stable)
        topics.setdefault(topic_partition.topic, []).append(offset)
    return ErrorCode.NONE, topics


def _offset_of(group: Group | None, topic_partition: TopicPartition, require_stable: bool) -> _Offset:
    index = topic_partition.partition
    if group is None:
        return _Offset(index)
    if require_stable and topic_partition in group.open_transactions:
        return _Offset(index, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    stored = group.offsets.get(topic_partition)
    if stored is None:
        return _Offset(index)
    committed = stored.committed
    return _Offset(index, committed.offset, committed.leader_epoch, committed.metadata)
