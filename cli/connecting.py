"""The cluster that a command talks to: its address, its settings, and requests in a trio loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import attrs
import click

from splashdam.cli.exiting import failures_reported
from splashdam.cli.parameters import cluster_options, settled_cluster
from splashdam.client.local import ADDRESS, Lease, local_address
from splashdam.client.running.connecting import authenticator, secured
from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.client.settings.rules import options_from_properties, producer_settings
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_for
from splashdam.model.cluster import ClusterMetadata
from splashdam.model.errors import IllegalArgumentError, KafkaConfigurationError
from splashdam.model.options import kafka_name
from splashdam.model.values import TopicPartition
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.admin.configs import Resource, describe_configs
from splashdam.net.admin.topics import describe_topic
from splashdam.net.clock import SystemClock
from splashdam.net.cluster.cluster_client import ClusterClient, ClusterClientSettings, open_cluster_client
from splashdam.net.connect import Connect, TcpConnect
from splashdam.net.connection.connection import Authenticator
from splashdam.net.run import run_in_trio
from splashdam.storage.settings import LogSettings

T = TypeVar("T")

_AUTO_CREATE = "auto.create.topics.enable"


class Cluster(NamedTuple):
    """How a command reaches its cluster.

    Attributes:
        addresses: the bootstrap servers.
        connect: opens connections, with TLS if the settings ask for it.
        authenticator: does the SASL exchange; None without SASL.
        timeout_ms: the longest wait for an answer.
        may_create_topics: whether a produce request may create a missing topic.
        client_id: sent with every request.
    """

    addresses: list[tuple[str, int]]
    connect: Connect
    authenticator: Authenticator | None
    timeout_ms: float
    may_create_topics: bool = True
    client_id: str = "splashdam-admin"

    def ask(self, task: Callable[[ClusterClient], Awaitable[T]]) -> T:
        """Run a task with a client of the cluster in a trio loop, and return its result."""

        async def run() -> T:
            async with open_cluster_client(
                self.addresses,
                connect=self.connect,
                clock=SystemClock(),
                settings=ClusterClientSettings(
                    client_id=self.client_id,
                    timeout_ms=self.timeout_ms,
                    request_timeout_ms=self.timeout_ms,
                ),
                authenticator=self.authenticator,
            ) as client:
                return await task(client)

        return run_in_trio(run)

    def check(self, reads: Sequence[str] = (), *, writes: Sequence[str] = ()) -> None:
        """Check that the cluster answers and has these topics.

        Args:
            reads: topics that have to exist.
            writes: topics that may be missing if brokers create them automatically.

        Raises:
            KafkaError: it does not answer, or a topic is missing.
        """

        async def find(client: ClusterClient) -> None:
            found = await client.cluster([*reads, *writes])
            for name in (*reads, *writes):
                info = found.topics.get(name)
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if info is None else info.error_code
                is_missing = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if is_missing and name not in reads and await self._creates_topics(client, found):
                    continue
                if code:
                    raise error_for(code, f"topic {name!r}")

        self.ask(find)

    async def _creates_topics(self, client: ClusterClient, found: ClusterMetadata) -> bool:
        """Return whether brokers create topics automatically; True if a broker does not tell."""
        if not self.may_create_topics:
            return False
        for node in found.nodes.values():
            try:
                configs = await describe_configs(client, Resource.BROKER, str(node.node_id), node=node)
            except BrokerResponseError:  # who may write may not always describe configurations
                return True
            if _AUTO_CREATE not in configs or configs[_AUTO_CREATE].value != "false":
                return True
        return False


CONNECTION = ("security.", "ssl.", "sasl.")
"""Prefixes of settings for the connection to a cluster."""


@contextmanager
def served_cluster(
    bootstrap_servers: str,
    properties: Mapping[str, str],
    timeout_seconds: float,
    *,
    may_be_new: bool = True,
) -> Iterator[tuple[str, Cluster]]:
    """Yield the address of a cluster that other processes can reach, and this process's access to it.

    For ``embedded:DIR`` a broker runs during the block, on a free port unless one is named.

    Args:
        bootstrap_servers: value of the option.
        properties: more settings, by Kafka's names; only those for the connection are used.
        timeout_seconds: the longest wait for an answer.
        may_be_new: whether a missing directory is created.

    Raises:
        KafkaConfigurationError: a setting is unknown or wrong, or the directory is missing.
    """
    # The other settings are for sources, sinks or producers; here they would be refused as unknown.
    asked = {
        name: value
        for name, value in properties.items()
        if name.startswith((*CONNECTION, "allow.auto.create.topics"))
    }
    if not may_be_new:
        _need_directory(bootstrap_servers)
    with _served(bootstrap_servers) as servers, named_cluster(servers, asked, timeout_seconds) as cluster:
        yield servers, cluster


def _need_directory(bootstrap_servers: str) -> None:
    local = local_address(bootstrap_servers)
    if local is not None and not local.directory.exists():
        raise KafkaConfigurationError(
            f"{bootstrap_servers}: there is no directory {local.directory}; "
            "'splashdam topics create' makes one, and so does a producer"
        )


@contextmanager
def _served(bootstrap_servers: str) -> Iterator[str]:
    local = local_address(bootstrap_servers)
    if local is None:
        yield bootstrap_servers
        return
    lease = Lease(local if local.port is not None else local._replace(port=0))
    try:
        yield lease.broker.bootstrap_servers
    finally:
        lease.release()


@contextmanager
def named_cluster(
    bootstrap_servers: str,
    properties: Mapping[str, str],
    timeout_seconds: float,
    *,
    may_be_new: bool = False,
) -> Iterator[Cluster]:
    """Yield access to a cluster: over TCP, or to a broker in this process for ``embedded:DIR``.

    Args:
        bootstrap_servers: value of the option.
        properties: more settings, by Kafka's names.
        timeout_seconds: the longest wait for an answer.
        may_be_new: whether a missing directory is created.

    Raises:
        KafkaConfigurationError: a setting is unknown or wrong, or the directory is missing.
    """
    options = options_from_properties(properties, what="client")
    options["bootstrap_servers"] = bootstrap_servers
    settings = producer_settings(options)
    local = local_address(settings.bootstrap_servers)
    if local is None:
        addresses = parse_bootstrap_servers(settings.bootstrap_servers)
        connect = secured(settings, TcpConnect())
        yield Cluster(
            addresses,
            connect,
            authenticator(settings),
            timeout_seconds * 1000,
            settings.allow_auto_create_topics,
        )
        return
    if not may_be_new:
        _need_directory(bootstrap_servers)
    lease = Lease(local)
    try:
        yield Cluster(
            [ADDRESS], lease.connect(), None, timeout_seconds * 1000, settings.allow_auto_create_topics
        )
    finally:
        lease.release()


async def chosen_partitions(
    client: ClusterClient, wanted: Iterable[tuple[str, tuple[int, ...]]]
) -> list[TopicPartition]:
    """Return the partitions that `PartitionList` parameters name.

    Raises:
        IllegalArgumentError: a topic has no such partition.
        BrokerResponseError: a topic does not exist.
    """
    chosen = []
    for topic, numbers in wanted:
        existing = [each.partition for each in (await describe_topic(client, topic)).partitions]
        if missing := set(numbers) - set(existing):
            raise IllegalArgumentError(f"{topic} has no partition {min(missing)}; it has {len(existing)}")
        chosen += [TopicPartition(topic, each) for each in numbers or existing]
    return chosen


def on_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a cluster, and call the command with the cluster as its first argument.

    Errors of the cluster end the command with a message and status 1.
    """
    return _on_cluster(command, may_be_new=False)


def on_cluster_or_new_directory(command: Callable[..., None]) -> Callable[..., None]:
    """As `on_cluster`, for commands that create the directory of ``embedded:DIR`` if it is missing."""
    return _on_cluster(command, may_be_new=True)


def _on_cluster(command: Callable[..., None], *, may_be_new: bool) -> Callable[..., None]:

    @cluster_options()
    @wraps(command)
    def run(
        *,
        config: Path | None,
        properties: dict[str, str],
        timeout_seconds: float,
        **arguments: Any,
    ) -> None:
        arguments.pop("bootstrap_servers")
        if "configs" in arguments:
            _refuse_topic_configs(properties)
        with failures_reported():
            servers, settings = settled_cluster(config, properties)
            with named_cluster(servers, settings, timeout_seconds, may_be_new=may_be_new) as cluster:
                command(cluster, **arguments)

    return run


def _refuse_topic_configs(properties: Mapping[str, str]) -> None:
    """Refuse a topic configuration given with ``-X``, which sets the client of this command."""
    of_clients = {kafka_name(field) for field in attrs.fields(ProducerSettings)}
    of_topics = {kafka_name(field) for field in attrs.fields(LogSettings)} - of_clients
    for name in of_topics & properties.keys():
        raise click.UsageError(
            f"{name} is a configuration of topics, and -X is for the settings of this client; give it as "
            f"--topic-config {name}={properties[name]}",
            click.get_current_context(),
        )
