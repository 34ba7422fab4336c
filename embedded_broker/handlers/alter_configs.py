"""AlterConfigs 0–2: replace all configurations of topics, brokers, groups, …"""

from __future__ import annotations

from splashdam.embedded_broker.dynamic_configs.changes import alter_all, alter_each
from splashdam.embedded_broker.execution.turns import Steps
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


@handles(AlterConfigsRequest, versions=range(3))
def alter_configs(request: AlterConfigsRequest, context: RequestContext) -> Steps[AlterConfigsResponse]:
    """Answer for each resource; the others are changed even if one fails."""

    def alter(asked: AlterConfigsResource) -> None:
        configs = [(each.name, each.value) for each in asked.configs]
        alter_all(
            context.broker,
            asked.resource_type,
            asked.resource_name,
            configs,
            validate_only=request.validate_only,
        )

    responses = yield from alter_each(request.resources, alter, AlterConfigsResourceResponse)
    return AlterConfigsResponse(responses=responses)
