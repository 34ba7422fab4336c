"""JoinGroup 0–9: a consumer joins a group, or its next generation.

The answer is parked until every member that the rebalance waits for has joined.
"""

from __future__ import annotations

from functools import partial

from splashdam.embedded_broker.execution.answers import Answer
from splashdam.embedded_broker.groups.classic.join_group import join
from splashdam.embedded_broker.groups.classic.members import (
    AssignorProtocol,
    ClassicMember,
    JoinRequest,
    JoinResult,
)
from splashdam.embedded_broker.groups.classic.parked_replies import Reply, answer_to
from splashdam.embedded_broker.groups.consumer.classic_members import ClassicRequests
from splashdam.embedded_broker.groups.routing import check_group_id, membership_to_join
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_for
from splashdam.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

_FIRST_REBALANCE_TIMEOUT_VERSION = 1
_FIRST_ID_REQUIRED_VERSION = 4
_FIRST_NULL_PROTOCOL_VERSION = 7
_FIRST_SKIPPED_ASSIGNMENT_VERSION = 9


@handles(JoinGroupRequest, versions=range(10))
def join_group(request: JoinGroupRequest, context: RequestContext) -> Answer:
    """Answer with the generation and its leader; the leader also gets the members."""
    groups, version = context.broker.groups, context.version
    try:
        check_group_id(request.group_id)
        _check_session_timeout(request.session_timeout_ms, context)
        membership = membership_to_join(groups, request.group_id, request.member_id)
    except BrokerResponseError as error:
        return _response(version, JoinResult(error.code, request.member_id))
    reply: Reply[JoinResult] = Reply()
    if isinstance(membership, ClassicRequests):
        membership.join(_asked(request, context), reply)
    else:
        join(membership, _asked(request, context), reply)
    return answer_to(
        reply,
        partial(_response, version),
        partial(groups.log_of, request.group_id),
        lambda _: _response(version, JoinResult(ErrorCode.NOT_COORDINATOR, "")),
    )


def _check_session_timeout(timeout_ms: int, context: RequestContext) -> None:
    settings = context.broker.settings.groups
    if not settings.group_min_session_timeout_ms <= timeout_ms <= settings.group_max_session_timeout_ms:
        raise error_for(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"a session timeout of {timeout_ms} ms is not between group.min.session.timeout.ms and "
            "group.max.session.timeout.ms",
        )


def _asked(request: JoinGroupRequest, context: RequestContext) -> JoinRequest:
    has_timeout = context.version >= _FIRST_REBALANCE_TIMEOUT_VERSION
    return JoinRequest(
        request.member_id,
        request.group_instance_id,
        context.client_id or "",
        context.client_host,
        request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms,
        request.session_timeout_ms,
        request.protocol_type,
        tuple(AssignorProtocol(each.name, each.metadata) for each in request.protocols),
        context.version >= _FIRST_ID_REQUIRED_VERSION,
        context.version >= _FIRST_SKIPPED_ASSIGNMENT_VERSION,
    )


def _response(version: int, result: JoinResult) -> JoinGroupResponse:
    protocol_name = result.protocol_name
    if protocol_name is None and version < _FIRST_NULL_PROTOCOL_VERSION:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=result.error_code,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[_member(each, result.protocol_name) for each in result.members],
    )


def _member(member: ClassicMember, protocol_name: str | None) -> JoinGroupResponseMember:
    return JoinGroupResponseMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        metadata=member.metadata(protocol_name),
    )
