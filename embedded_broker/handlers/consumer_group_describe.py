"""ConsumerGroupDescribe 0–1: state, epochs and members of consumer groups (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable

from splashdam.embedded_broker.execution.answers import Answer
from splashdam.embedded_broker.execution.turns import (
    ANSWER_BYTES,
    ANSWER_TOO_LARGE,
    PARTITIONS_IN_A_UNIT,
    Steps,
    units_of_names,
)
from splashdam.embedded_broker.groups.consumer.group import ConsumerGroup
from splashdam.embedded_broker.groups.consumer.member import ConsumerMember, Share, TopicIdPartition
from splashdam.embedded_broker.groups.consumer.membership import ConsumerMembership
from splashdam.embedded_broker.groups.consumer.records import by_topic
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.topics.topics import Topics
from splashdam.model.acls import Operation, ResourceType
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_for
from splashdam.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

_CLASSIC, _CONSUMER = 0, 1
_UNIT_LETTERS = 1024
"""Letters of names in a unit; numbers of partitions are fewer bytes."""


@handles(ConsumerGroupDescribeRequest, versions=range(2))
def consumer_group_describe(request: ConsumerGroupDescribeRequest, context: RequestContext) -> Steps[Answer]:
    """Answer with a code for each group; 69 for a classic group. A group named twice is looked up once."""
    answer, left = ConsumerGroupDescribeResponse(), ANSWER_BYTES // _UNIT_LETTERS
    described: dict[str, tuple[DescribedGroup, int]] = {}
    for group_id in request.group_ids:
        if left > 0 and group_id not in described:
            found = yield from _described(group_id, context)
            described[group_id] = found, sum(map(_units, found.members))
            if request.include_authorized_operations and not found.error_code:
                found.authorized_operations = context.authorized_operations(ResourceType.GROUP, group_id)
        found, units = described[group_id] if left > 0 else (_left_out(group_id), 0)
        answer.groups.append(found)
        units += units_of_names(group_id)  # each time: it is encoded each time
        left -= units
        yield units
    return answer


def _left_out(group_id: str) -> DescribedGroup:
    return DescribedGroup(
        error_code=ErrorCode.INVALID_REQUEST, error_message=ANSWER_TOO_LARGE, group_id=group_id
    )


def _units(member: Member) -> int:
    assigned = (*member.assignment.topic_partitions, *member.target_assignment.topic_partitions)
    ids = (member.member_id, member.instance_id or "", member.rack_id or "", member.client_id)
    names = (*ids, member.subscribed_topic_regex or "", *member.subscribed_topic_names)
    fields = len(names) + sum(len(each.partitions) for each in assigned)
    return fields // PARTITIONS_IN_A_UNIT + units_of_names(*names)


def _described(group_id: str, context: RequestContext) -> Steps[DescribedGroup]:
    try:
        membership = _membership(group_id, context)
        # Groups are replaced, not changed: whatever happens meanwhile, the answer shows what is authorized.
        group = membership.group
        yield from _authorize_topics(group, context)
    except BrokerResponseError as error:
        return DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id)
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=membership.assignor,
    )
    for member in group.members.values():
        described.members.append(_member(member, group.share_of(member.member_id), context.broker.topics))
        yield _units(described.members[-1])
    return described


def _membership(group_id: str, context: RequestContext) -> ConsumerMembership:
    if not context.authorize(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED, "describing this group is not allowed")
    if not group_id:
        raise error_for(ErrorCode.INVALID_GROUP_ID, "a group's id is not empty")
    group = context.broker.groups.find(group_id)
    if group is None or not isinstance(group.membership, ConsumerMembership):
        what = "not found" if group is None else "is not a consumer group"
        raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
    return group.membership


def _authorize_topics(group: ConsumerGroup, context: RequestContext) -> Steps[None]:
    """Hide topics that the client may not describe.

    Raises:
        BrokerResponseError: TOPIC_AUTHORIZATION_FAILED (29).
    """
    for number, name in enumerate(group.subscribed_names(), 1):
        if not context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name):
            raise error_for(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "the group reads topics that the client may not describe",
            )
        if number % PARTITIONS_IN_A_UNIT == 0:
            yield 1


def _member(member: ConsumerMember, share: Share, topics: Topics) -> Member:
    metadata = member.metadata
    return Member(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=member.current.member_epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=sorted(metadata.topic_names),
        subscribed_topic_regex=metadata.topic_regex or "",
        assignment=_assignment(member.current.assigned, topics),
        target_assignment=_assignment(share, topics),
        member_type=_CLASSIC if member.is_classic else _CONSUMER,
    )


def _assignment(partitions: Iterable[TopicIdPartition], topics: Topics) -> Assignment:
    """Add the topic names to partitions; partitions of deleted topics are left out, as in Kafka."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=numbers)
            for topic_id, numbers in by_topic(partitions)
            if (topic := topics.by_id(topic_id)) is not None
        ]
    )
