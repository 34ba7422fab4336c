"""IncrementalAlterConfigs 0–1: change single configurations of topics, brokers, groups, …"""

from __future__ import annotations

from splashdam.embedded_broker.dynamic_configs.changes import Change, alter_each, alter_some
from splashdam.embedded_broker.execution.turns import Steps
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


@handles(IncrementalAlterConfigsRequest, versions=range(2))
def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> Steps[IncrementalAlterConfigsResponse]:
    """Answer for each resource; the others are changed even if one fails."""

    def alter(asked: AlterConfigsResource) -> None:
        changes = [Change(each.name, each.config_operation, each.value) for each in asked.configs]
        alter_some(
            context.broker,
            asked.resource_type,
            asked.resource_name,
            changes,
            validate_only=request.validate_only,
        )

    responses = yield from alter_each(request.resources, alter, AlterConfigsResourceResponse)
    return IncrementalAlterConfigsResponse(responses=responses)
