"""ListConfigResources 0–1: the resources that have configurations; in version 0 only client metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from splashdam.embedded_broker.dynamic_configs.resources import ResourceType
from splashdam.embedded_broker.dynamic_configs.stored import CLIENT_METRICS, GROUP
from splashdam.embedded_broker.serving.registry import AskedBroker, RequestContext, handles
from splashdam.model.broker_errors import ErrorCode
from splashdam.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


def _brokers(broker: AskedBroker) -> list[str]:
    return [str(node_id) for node_id in sorted(broker.controller.state.brokers)]


_NAMES: Mapping[int, Callable[[AskedBroker], list[str]]] = {
    ResourceType.TOPIC: lambda broker: [topic.name for topic in broker.topics.all()],
    ResourceType.BROKER: _brokers,
    ResourceType.BROKER_LOGGER: _brokers,
    ResourceType.CLIENT_METRICS: lambda broker: broker.configs.names(CLIENT_METRICS),
    ResourceType.GROUP: lambda broker: broker.configs.names(GROUP),
}


@handles(ListConfigResourcesRequest, versions=range(2))
def list_config_resources(
    request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    """Answer with the resources of the types asked for, or all; 35 for an unknown type."""
    kinds = [ResourceType.CLIENT_METRICS] if context.version == 0 else request.resource_types or list(_NAMES)
    if not set(kinds) <= set(_NAMES):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in dict.fromkeys(kinds)
            for name in _NAMES[kind](context.broker)
        ]
    )
