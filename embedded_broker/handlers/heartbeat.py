"""Heartbeat 0–4: keep a member's session; error 27 makes it rejoin."""

from __future__ import annotations

from splashdam.embedded_broker.groups.routing import membership_of
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.broker_errors import BrokerResponseError
from splashdam.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@handles(HeartbeatRequest, versions=range(5))
def heartbeat(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    """Restart the member's session timeout."""
    try:
        membership = membership_of(context.broker.groups, request.group_id)
        membership.heartbeat(request.generation_id, request.member_id, request.group_instance_id)
    except BrokerResponseError as error:
        return HeartbeatResponse(error_code=error.code)
    return HeartbeatResponse()
