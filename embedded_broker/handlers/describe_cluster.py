"""DescribeCluster 0–2: the brokers with their addresses on the client's listener, and the controller."""

from __future__ import annotations

from splashdam.embedded_broker.handlers.metadata import CLUSTER_OPERATIONS
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.broker_errors import ErrorCode
from splashdam.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS, _CONTROLLERS = 1, 2
"""Kafka's numbers of endpoint types."""


@handles(DescribeClusterRequest, versions=range(3))
def describe_cluster(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    """Answer with the brokers; controllers have no endpoints of their own here."""
    if request.endpoint_type == _CONTROLLERS:
        return _refusal(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker, no controller")
    if request.endpoint_type != _BROKERS:
        return _refusal(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"endpoints of type {request.endpoint_type} are not known"
        )
    broker, state = context.broker, context.broker.controller.state
    with_fenced = request.include_fenced_brokers
    addresses = broker.leadership.brokers(context.address, with_fenced=with_fenced)
    fenced = {node_id for node_id, each in state.brokers.items() if each.is_fenced} if with_fenced else set()
    answer = DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.leadership.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=node_id,
                host=address.host,
                port=address.port,
                rack=state.rack_of(node_id),
                is_fenced=node_id in fenced,
            )
            for node_id, address in addresses.items()
        ],
    )
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = CLUSTER_OPERATIONS
    return answer


def _refusal(code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=message)
