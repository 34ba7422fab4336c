"""FindCoordinator 0–6: this broker, for consumer groups and for transactional ids.

It answers at once, so that no client waits for a time-out; what a coordinator then does is a matter of its
own keys. Share groups (key type 2) are refused with 42.
"""

from __future__ import annotations

from splashdam.embedded_broker.registry import RequestContext, handles
from splashdam.model.error_codes import ErrorCode
from splashdam.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_GROUP, _TRANSACTION = 0, 1


@handles(FindCoordinatorRequest, versions=range(7))
def find_coordinator(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    """One coordinator for the key, or from version 4 on one for each key."""
    if context.version < 4:
        found = _coordinator(request.key, request.key_type, context)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    return FindCoordinatorResponse(
        coordinators=[_coordinator(key, request.key_type, context) for key in request.coordinator_keys]
    )


def _coordinator(key: str, key_type: int, context: RequestContext) -> Coordinator:
    if key_type not in (_GROUP, _TRANSACTION):
        return Coordinator(
            key=key,
            node_id=-1,
            port=-1,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"this broker coordinates consumer groups (0) and transactions (1), not {key_type}",
        )
    return Coordinator(
        key=key, node_id=context.broker.node_id, host=context.address.host, port=context.address.port
    )
