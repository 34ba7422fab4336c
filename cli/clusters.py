"""The cluster that a command talks to: named, connected, and asked in a trio loop of the command's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import attrs
import click
import trio

from splashdam.cli.failures import failures_reported
from splashdam.cli.parameters import (
    bootstrap_servers_option,
    config_option,
    property_option,
    read_properties,
)
from splashdam.client.local import ADDRESS, Lease, local_address
from splashdam.client.settings import ProducerSettings
from splashdam.client.settings_rules import options_from_properties, producer_settings
from splashdam.client.wiring import authenticator, secured
from splashdam.embedded_broker.topic_settings import TopicSettings
from splashdam.model.options import kafka_name
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.authentication import Authenticator
from splashdam.net.clock import SystemClock
from splashdam.net.cluster_client import ClusterClient, ClusterClientSettings, open_cluster_client
from splashdam.net.connect import Connect, TcpConnect

T = TypeVar("T")

SETTINGS = ClusterClientSettings(client_id="splashdam-admin", timeout_ms=15_000)
"""A cluster that does not answer for longer ends the command with a message."""


class Cluster(NamedTuple):
    """Where to begin, how to connect, and what shows who we are."""

    addresses: list[tuple[str, int]]
    connect: Connect
    authenticator: Authenticator | None

    def ask(self, task: Callable[[ClusterClient], Awaitable[T]]) -> T:
        """What a task makes of the cluster's answers."""

        async def run() -> T:
            async with open_cluster_client(
                self.addresses,
                connect=self.connect,
                clock=SystemClock(),
                settings=SETTINGS,
                authenticator=self.authenticator,
            ) as client:
                return await task(client)

        return trio.run(run)


@contextmanager
def named_cluster(
    bootstrap_servers: str, config: Path | None, properties: Mapping[str, str]
) -> Iterator[Cluster]:
    """The one that is named: by TCP, or a broker in this process for ``embedded:DIR``.

    Args:
        bootstrap_servers: as the option says.
        config: a file with more settings.
        properties: settings that win over those of the file.

    Raises:
        KafkaConfigurationError: a setting is unknown or wrong.
    """
    given = {} if config is None else read_properties(config)
    options = options_from_properties({**given, **properties})
    options["bootstrap_servers"] = bootstrap_servers
    settings = producer_settings(options)
    local = local_address(settings.bootstrap_servers)
    if local is None:
        addresses = parse_bootstrap_servers(settings.bootstrap_servers)
        yield Cluster(addresses, secured(settings, TcpConnect()), authenticator(settings))
        return
    lease = Lease(local)
    try:
        yield Cluster([ADDRESS], lease.connect(), None)
    finally:
        lease.release()


def on_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options that name a cluster, and, as its first argument, the cluster.

    What the cluster refuses is reported as a message and a status.
    """

    @bootstrap_servers_option
    @config_option("client")
    @property_option("client")
    @wraps(command)
    def run(
        *, bootstrap_servers: str, config: Path | None, properties: dict[str, str], **arguments: Any
    ) -> None:
        if "configs" in arguments:
            _refuse_topic_configs(properties)
        with failures_reported(), named_cluster(bootstrap_servers, config, properties) as cluster:
            command(cluster, **arguments)

    return run


def _refuse_topic_configs(properties: Mapping[str, str]) -> None:
    """Where a command takes both, the settings of clients are easily taken for those of the topic."""
    of_clients = {kafka_name(field) for field in attrs.fields(ProducerSettings)}
    of_topics = {kafka_name(field) for field in attrs.fields(TopicSettings)} - of_clients
    for name in of_topics & properties.keys():
        raise click.UsageError(
            f"{name} is a configuration of topics, and -X is for the settings of this client; give it as "
            f"--topic-config {name}={properties[name]}",
            click.get_current_context(),
        )
