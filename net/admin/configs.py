"""Configurations of topics, brokers, groups and client metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from splashdam.model.broker_errors import error_for
from splashdam.model.cluster import Node
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from splashdam.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_SET, _DELETE = 0, 1
_UNKNOWN, _DEFAULT = 0, 5


class Resource(IntEnum):
    """Config resource types, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigValue(NamedTuple):
    """One configuration.

    Attributes:
        value: as text; None for a secret.
        is_default: whether it was never set.
        read_only: whether a change needs a restart of the broker.
    """

    value: str | None
    is_default: bool
    read_only: bool


async def describe_configs(
    client: ClusterClient, resource: Resource, name: str, *, node: Node | None = None
) -> dict[str, ConfigValue]:
    """Return all configurations of a resource by name.

    Args:
        client: of the cluster.
        resource: type of the resource.
        name: name of the resource.
        node: the broker to ask, since only a broker itself knows its own configurations; None: any broker.

    Raises:
        BrokerResponseError: the resource does not exist.
        KafkaTimeoutError: the cluster did not answer.
    """
    asked = DescribeConfigsResource(resource_type=resource, resource_name=name, configuration_keys=None)

    def values(answer: DescribeConfigsResponse) -> dict[str, ConfigValue]:
        (found,) = answer.results
        if found.error_code:
            raise error_for(found.error_code, found.error_message or f"{resource.name.lower()} {name!r}")
        return {
            each.name: ConfigValue(each.value, each.config_source in (_UNKNOWN, _DEFAULT), each.read_only)
            for each in found.configs
        }

    request = DescribeConfigsRequest(resources=[asked])
    return await (client.any(request, values) if node is None else client.broker(node, request, values))


async def alter_configs(
    client: ClusterClient,
    resource: Resource,
    name: str,
    *,
    changes: Mapping[str, str] | None = None,
    delete: Sequence[str] = (),
) -> None:
    """Set configurations of a resource, and reset others to their defaults.

    Raises:
        BrokerResponseError: the resource or configuration does not exist, or the value is invalid; nothing
            was changed.
        KafkaTimeoutError: the cluster did not answer.
    """
    altered = [
        AlterableConfig(name=key, config_operation=_SET, value=value)
        for key, value in (changes or {}).items()
    ]
    altered += [AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in delete]
    asked = AlterConfigsResource(resource_type=resource, resource_name=name, configs=altered)

    def check(answer: IncrementalAlterConfigsResponse) -> None:
        for each in answer.responses:
            if each.error_code:
                raise error_for(each.error_code, each.error_message or f"{resource.name.lower()} {name!r}")

    await client.controller(IncrementalAlterConfigsRequest(resources=[asked]), check)
