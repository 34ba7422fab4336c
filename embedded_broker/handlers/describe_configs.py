"""DescribeConfigs 1–4: what is set for topics, brokers, groups, … and where each value comes from."""

from __future__ import annotations

import trio

from splashdam.embedded_broker.config_loggers import logger_entries
from splashdam.embedded_broker.config_resources import RESOURCES, ResourceType, check_is_broker
from splashdam.embedded_broker.described_configs import ConfigEntry
from splashdam.embedded_broker.registry import Answer, Parked, RequestContext, handles
from splashdam.model.broker_errors import InvalidRequestError
from splashdam.model.errors import BrokerResponseError
from splashdam.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

_MOST_AT_ONCE = 50
"""Resources; some hundredths of a second."""


@handles(DescribeConfigsRequest, versions=range(1, 5))
def describe_configs(request: DescribeConfigsRequest, context: RequestContext) -> Answer:
    """One answer for each resource; while it asks for many, others have their turns."""
    distinct = {_key(asked): asked for asked in request.resources}.values()
    if len(distinct) <= _MOST_AT_ONCE:
        return DescribeConfigsResponse(results=[_result(asked, request, context) for asked in distinct])

    async def describe() -> DescribeConfigsResponse:
        answer = DescribeConfigsResponse()
        for number, asked in enumerate(distinct):
            if number % _MOST_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            answer.results.append(_result(asked, request, context))
        return answer

    return Parked(describe)


def _key(asked: DescribeConfigsResource) -> tuple[object, ...]:
    """What makes two questions the same one: nobody is answered 168 settings of a broker a thousand times."""
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
