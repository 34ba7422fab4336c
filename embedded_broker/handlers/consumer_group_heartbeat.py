"""ConsumerGroupHeartbeat 0–1: members of consumer groups join, stay and leave (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.configs.groups import assignor_names
from splashdam.embedded_broker.execution.answers import Answer
from splashdam.embedded_broker.execution.turns import PARTITIONS_IN_A_UNIT, Steps, in_steps
from splashdam.embedded_broker.groups.consumer.heartbeat import Heartbeat
from splashdam.embedded_broker.groups.consumer.member import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    Share,
    TopicIdPartition,
)
from splashdam.embedded_broker.groups.consumer.membership import PATTERN_ELEMENTS, Asked, HeartbeatReply
from splashdam.embedded_broker.groups.routing import heartbeat_of
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.topics.internal_topics import Appended
from splashdam.model.acls import Operation, ResourceType
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_for
from splashdam.model.log_text import quoted
from splashdam.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_FIRST_MEMBER_ID_VERSION = 1
"""First version in which clients choose their member id."""


@handles(ConsumerGroupHeartbeatRequest, versions=range(2))
def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> Steps[Answer]:
    """Process a heartbeat; its changes are in the log before the answer is sent."""
    groups, group_id = context.broker.groups, request.group_id
    appended = Appended()
    try:
        yield from _authorize(request, context)
        _check(request, context.version, context.broker.settings)
        reply = yield from heartbeat_of(groups, group_id, _asked(request, context))
        appended.add(groups.log_of(group_id))
    except BrokerResponseError as error:
        return _refused(error.code, error.message)
    answer = yield from _response(reply)
    return appended.answer(answer, lambda _: _refused(ErrorCode.NOT_COORDINATOR))


def _asked(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> Asked:
    member_id = request.member_id or context.broker.groups.new_id()
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return Asked(
        member_id,
        request.member_epoch,
        partial(_heartbeat, request, context, member_id),
        (
            len(names or ())
            + sum(1 + len(each.partitions) for each in owned or ())
            + PATTERN_ELEMENTS * bool(request.subscribed_topic_regex)
        ),
        names or (),
        has_content=any(each is not None for each in (names, owned, request.subscribed_topic_regex)),
    )


def _heartbeat(request: ConsumerGroupHeartbeatRequest, context: RequestContext, member_id: str) -> Heartbeat:
    names = request.subscribed_topic_names
    return Heartbeat(
        member_id,
        request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=None if names is None else frozenset(names),
        topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=None if request.topic_partitions is None else _share(request.topic_partitions),
        client_id=context.client_id or "",
        client_host=context.client_host,
    )


def _share(topics: Iterable[TopicPartitions]) -> Share:
    return frozenset(
        TopicIdPartition(bytes(each.topic_id), number) for each in topics for number in each.partitions
    )


def _authorize(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> Steps[None]:
    """Refuse clients that may not read with the group, or not describe the topics.

    Raises:
        BrokerResponseError: GROUP_AUTHORIZATION_FAILED (30), TOPIC_AUTHORIZATION_FAILED (29).
    """
    if not context.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED, "reading with this group is not allowed")
    if context.broker.authorizer is None:
        return
    for number, name in enumerate(request.subscribed_topic_names or (), 1):
        if number % PARTITIONS_IN_A_UNIT == 0:
            yield 1
        if not context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name):
            raise error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "describing these topics is not allowed")


def _check(request: ConsumerGroupHeartbeatRequest, version: int, settings: BrokerSettings) -> None:
    """Refuse illegal requests, as Kafka's GroupCoordinatorService does.

    Raises:
        BrokerResponseError: UNSUPPORTED_VERSION (35), INVALID_REQUEST (42), UNSUPPORTED_ASSIGNOR (112).
    """
    if not settings.groups.group_version:
        raise error_for(ErrorCode.UNSUPPORTED_VERSION, "group.version is 0: there are classic groups alone")
    problem = _problem(request, version)
    if problem:
        raise error_for(ErrorCode.INVALID_REQUEST, problem)
    known = assignor_names(settings.groups.group_consumer_assignors)
    if request.server_assignor is not None and request.server_assignor not in known:
        raise error_for(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {quoted(request.server_assignor)} is not supported; "
            f"these are: {', '.join(known)}",
        )


def _problem(request: ConsumerGroupHeartbeatRequest, version: int) -> str | None:
    epoch = request.member_epoch
    needs_member_id = version >= _FIRST_MEMBER_ID_VERSION or epoch > JOINING or epoch == LEAVING
    if needs_member_id and not request.member_id.strip():
        return "MemberId can't be empty"
    for name, value in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            return f"{name} can't be empty"
    if epoch == JOINING:
        return _problem_of_joining(request)
    if epoch == LEAVING_FOR_A_WHILE and request.instance_id is None:
        return "InstanceId can't be null: a static member alone leaves for a while"
    if epoch < LEAVING_FOR_A_WHILE:
        return f"MemberEpoch {epoch} is invalid"
    return None


def _problem_of_joining(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in the first request"
    if request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining"
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining"
    return None


def _response(reply: HeartbeatReply) -> Steps[ConsumerGroupHeartbeatResponse]:
    assignment = None
    if reply.assigned is not None:
        assignment = Assignment(topic_partitions=(yield from in_steps(reply.assigned, _topic_partitions)))
    return ConsumerGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=assignment,
    )


def _topic_partitions(assigned: tuple[bytes, list[int]]) -> TopicPartitions:
    topic_id, partitions = assigned
    return TopicPartitions(topic_id=topic_id, partitions=partitions)


def _refused(code: int, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message, assignment=None)
