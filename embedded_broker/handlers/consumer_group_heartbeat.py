"""ConsumerGroupHeartbeat 0–1: members of consumer groups join, go on, and leave (KIP-848, facts 5.2)."""

from __future__ import annotations

from collections.abc import Iterable

from splashdam.embedded_broker.groups.consumer.heartbeat import Heartbeat
from splashdam.embedded_broker.groups.consumer.member import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    Share,
    TopicIdPartition,
)
from splashdam.embedded_broker.groups.consumer.membership import HeartbeatReply
from splashdam.embedded_broker.groups.consumer.migration import heartbeat_of
from splashdam.embedded_broker.groups.consumer.records import by_topic
from splashdam.embedded_broker.groups.consumer.settings import assignor_names
from splashdam.embedded_broker.internal_topics import answer_when_safe
from splashdam.embedded_broker.permissions import Operation, ResourceType
from splashdam.embedded_broker.registry import Answer, RequestContext, handles
from splashdam.embedded_broker.settings import BrokerSettings
from splashdam.model.broker_errors import error_for
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import BrokerResponseError
from splashdam.model.quoting import quoted
from splashdam.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_FIRST_MEMBER_ID_VERSION = 1
"""From it on clients choose their member id."""


@handles(ConsumerGroupHeartbeatRequest, versions=range(2))
def consumer_group_heartbeat(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> Answer:
    """Takes a heartbeat; what it changes is in the log before the answer goes."""
    broker = context.broker
    try:
        _authorize(request, context)
        _check(request, context.version, broker.settings)
        asked = _asked(request, context, request.member_id or broker.groups.new_id())
        reply = heartbeat_of(broker.groups, request.group_id, asked)
        log = broker.groups.log_of(request.group_id)
    except BrokerResponseError as error:
        return _refused(error.code, error.message)
    return answer_when_safe(log, _response(reply), lambda _: _refused(ErrorCode.NOT_COORDINATOR))


def _asked(request: ConsumerGroupHeartbeatRequest, context: RequestContext, member_id: str) -> Heartbeat:
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


def _authorize(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> None:
    """Refuses who may not read with the group, or not know of the topics.

    Raises:
        BrokerResponseError: GROUP_AUTHORIZATION_FAILED (30), TOPIC_AUTHORIZATION_FAILED (29).
    """
    if not context.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED, "reading with this group is not allowed")
    for name in request.subscribed_topic_names or ():
        if not context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name):
            raise error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "describing these topics is not allowed")


def _check(request: ConsumerGroupHeartbeatRequest, version: int, settings: BrokerSettings) -> None:
    """Refuses what no member may say, as Kafka's GroupCoordinatorService.

    Raises:
        BrokerResponseError: UNSUPPORTED_VERSION (35), INVALID_REQUEST (42), UNSUPPORTED_ASSIGNOR (112).
    """
    if not settings.group_version:
        raise error_for(ErrorCode.UNSUPPORTED_VERSION, "group.version is 0: there are classic groups alone")
    problem = _problem(request, version)
    if problem:
        raise error_for(ErrorCode.INVALID_REQUEST, problem)
    known = assignor_names(settings.group_consumer_assignors)
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


def _response(reply: HeartbeatReply) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if reply.assigned is not None:
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in by_topic(reply.assigned)
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=assignment,
    )


def _refused(code: int, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message, assignment=None)
