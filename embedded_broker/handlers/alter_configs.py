"""AlterConfigs 0–2: everything that is set for topics, brokers, groups, … is replaced at once."""

from __future__ import annotations

from splashdam.embedded_broker.answering.turns import Steps
from splashdam.embedded_broker.dynamic_configs.changes import alter_all, alter_each
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


@handles(AlterConfigsRequest, versions=range(3))
def alter_configs(request: AlterConfigsRequest, context: RequestContext) -> Steps[AlterConfigsResponse]:
    """One answer for each resource; one that fails does not keep others from being changed."""

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
