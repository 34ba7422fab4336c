"""Asks a broker about topics and configurations, request by request, and says in short what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from splashdam.wire.messages import alter_configs, incremental_alter_configs
from splashdam.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from splashdam.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from splashdam.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from support.broker.broker_talk import Talk

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


async def describe(
    talk: Talk, kind: int, name: str, keys: Sequence[str] | None = None, version: int = 4
) -> tuple[int, list[DescribeConfigsResourceResult]]:
    """The error code and the entries of a resource, by name."""
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    if version >= 3:
        request.include_documentation = True
    (result,) = (await talk.ask(request, version)).results
    return result.error_code, sorted(result.configs, key=lambda entry: entry.name)


async def value_of(talk: Talk, kind: int, name: str, key: str) -> tuple[str | None, list[tuple[Any, ...]]]:
    """A configuration's value, and where it is set: name, value and source."""
    _, entries = await describe(talk, kind, name, [key])
    if not entries:
        return None, []
    return entries[0].value, [(each.name, each.value, each.source) for each in entries[0].synonyms]


async def alter(
    talk: Talk, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> int:
    """Single changes to a resource: name, operation, value."""
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )
    return int((await talk.ask(request, 1)).responses[0].error_code)


async def replace(
    talk: Talk,
    kind: int,
    name: str,
    configs: Mapping[str, str | None],
    version: int = 2,
    *,
    validate_only: bool = False,
) -> int:
    """Everything that is set for a resource."""
    resource = alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[alter_configs.AlterableConfig(name=key, value=value) for key, value in configs.items()],
    )
    request = alter_configs.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    return int((await talk.ask(request, version)).responses[0].error_code)


async def grow(
    talk: Talk,
    topic: str,
    count: int,
    assignments: Sequence[Sequence[int]] | None = None,
    version: int = 3,
    *,
    validate_only: bool = False,
) -> int:
    """More partitions for a topic."""
    asked = CreatePartitionsTopic(
        name=topic,
        count=count,
        assignments=None
        if assignments is None
        else [CreatePartitionsAssignment(broker_ids=list(each)) for each in assignments],
    )
    request = CreatePartitionsRequest(topics=[asked], timeout_ms=5_000, validate_only=validate_only)
    return int((await talk.ask(request, version)).results[0].error_code)


async def page(
    talk: Talk, *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[int, str | None, list[int]]], tuple[str, int] | None]:
    """One page of topics with the numbers of their partitions, and where the next one begins."""
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer = await talk.ask(request, 0)
    topics = [
        (topic.error_code, topic.name, [each.partition_index for each in topic.partitions])
        for topic in answer.topics
    ]
    following = answer.next_cursor
    return topics, None if following is None else (following.topic_name, following.partition_index)
