"""DescribeConfigs 1–4: configurations of topics, brokers, groups, … with the source of each value."""

from __future__ import annotations

from splashdam.embedded_broker.configs.described import ConfigEntry
from splashdam.embedded_broker.dynamic_configs.resources import (
    RESOURCES,
    ResourceType,
    check_is_broker,
    logger_entries,
)
from splashdam.embedded_broker.execution.turns import Steps
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.broker_errors import BrokerResponseError, InvalidRequestError
from splashdam.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

_RESOURCE_UNITS = 8


@handles(DescribeConfigsRequest, versions=range(1, 5))
def describe_configs(
    request: DescribeConfigsRequest, context: RequestContext
) -> Steps[DescribeConfigsResponse]:
    """Answer for each resource."""
    distinct = {_key(asked): asked for asked in request.resources}.values()
    answer = DescribeConfigsResponse()
    for asked in distinct:
        yield 1 + _RESOURCE_UNITS
        answer.results.append(_result(asked, request, context))
    return answer


def _key(asked: DescribeConfigsResource) -> tuple[object, ...]:
    """Return a key that is equal for equal questions: each is answered only once in a request."""
    return asked.resource_type, asked.resource_name, frozenset(asked.configuration_keys or ())


def _result(
    asked: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message=None, resource_type=asked.resource_type, resource_name=asked.resource_name
    )
    try:
        entries = _entries(asked, context)
    except BrokerResponseError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    keys = frozenset(asked.configuration_keys or ())
    result.error_message = ""
    result.configs = [_described(each, request) for each in entries if not keys or each.name in keys]
    return result


def _entries(asked: DescribeConfigsResource, context: RequestContext) -> list[ConfigEntry]:
    if asked.resource_type == ResourceType.BROKER_LOGGER:
        check_is_broker(context.broker, asked.resource_name, may_be_all=False)
        return logger_entries()
    kind = RESOURCES.get(asked.resource_type)
    if kind is None:
        raise InvalidRequestError(f"resources of type {asked.resource_type} are not known here")
    return kind(context.broker, asked.resource_name).entries()


def _described(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in entry.synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=entry.kind,
        documentation=entry.doc if request.include_documentation else None,
    )
