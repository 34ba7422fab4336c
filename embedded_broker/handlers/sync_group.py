"""SyncGroup 0–5: the leader sends the assignments, and every member gets its own."""

from __future__ import annotations

from functools import partial

from splashdam.embedded_broker.execution.answers import Answer
from splashdam.embedded_broker.groups.classic.members import SyncResult
from splashdam.embedded_broker.groups.classic.parked_replies import Reply, answer_to
from splashdam.embedded_broker.groups.routing import lacks_protocol, membership_of
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_for
from splashdam.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


@handles(SyncGroupRequest, versions=range(6))
def sync_group(request: SyncGroupRequest, context: RequestContext) -> Answer:
    """Answer with the member's assignment; parked until the leader has sent it."""
    groups, reply = context.broker.groups, Reply[SyncResult]()
    try:
        if lacks_protocol(request, context.version):
            raise error_for(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the request names no protocol")
        membership = membership_of(groups, request.group_id)
        membership.validate(request.generation_id, request.member_id, request.group_instance_id)
        membership.check_protocol(request.member_id, request.protocol_type, request.protocol_name)
        assignments = {each.member_id: each.assignment for each in request.assignments}
        membership.sync(request.member_id, assignments, reply)
    except BrokerResponseError as error:
        return _response(SyncResult(error.code))
    return answer_to(
        reply,
        _response,
        partial(groups.log_of, request.group_id),
        lambda _: _response(SyncResult(ErrorCode.NOT_COORDINATOR)),
    )


def _response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error_code,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
