"""ConsumerGroupDescribe 0–1: state, epochs and members of consumer groups (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable

from splashdam.embedded_broker.execution.answers import Answer
from splashdam.embedded_broker.execution.turns import Steps, units_of_names
from splashdam.embedded_broker.groups.consumer.member import ConsumerMember, TopicIdPartition
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


@handles(ConsumerGroupDescribeRequest, versions=range(2))
def consumer_group_describe(request: ConsumerGroupDescribeRequest, context: RequestContext) -> Steps[Answer]:
    """Answer with a code for each group; 69 for a classic group."""
    answer = ConsumerGroupDescribeResponse()
    for group_id in request.group_ids:
        described = _described(group_id, context)
        answer.groups.append(described)
        if request.include_authorized_operations and not described.error_code:
            described.authorized_operations = context.authorized_operations(ResourceType.GROUP, group_id)
        yield units_of_names(group_id) + len(described.members)
    return answer


def _described(group_id: str, context: RequestContext) -> DescribedGroup:
    broker = context.broker
    try:
        if not context.authorize(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED, "describing this group is not allowed")
        if not group_id:
            raise error_for(ErrorCode.INVALID_GROUP_ID, "a group's id is not empty")
        group = broker.groups.find(group_id)
        if group is None or not isinstance(group.membership, ConsumerMembership):
            what = "not found" if group is None else "is not a consumer group"
            raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        _authorize_topics(group.membership, context)
    except BrokerResponseError as error:
        return DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id)
    found = group.membership.group
    return DescribedGroup(
        group_id=group_id,
        group_state=found.state,
        group_epoch=found.epoch,
        assignment_epoch=found.assignment_epoch,
        assignor_name=group.membership.assignor,
        members=[
            _member(each, found.share_of(each.member_id), broker.topics) for each in found.members.values()
        ],
    )


def _authorize_topics(membership: ConsumerMembership, context: RequestContext) -> None:
    """Hide topics that the client may not describe.

    Raises:
        BrokerResponseError: TOPIC_AUTHORIZATION_FAILED (29).
    """
    for name in membership.group.subscribed_names():
        if not context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name):
            raise error_for(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "the group reads topics that the client may not describe",
            )


def _member(member: ConsumerMember, share: Iterable[TopicIdPartition], topics: Topics) -> Member:
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
