"""Look at a cluster through the Kafka protocol, and at the broker of this process through `Inside`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

import trio

from splashdam.model.broker_errors import BrokerResponseError, UnsupportedVersionError
from splashdam.model.cluster import ClusterMetadata
from splashdam.model.errors import message_of
from splashdam.model.inspection import (
    BrokerView,
    ClientView,
    DiskView,
    Overview,
    PartitionView,
    SettingView,
    TopicView,
)
from splashdam.model.values import TopicPartition
from splashdam.net.admin.configs import Resource, describe_configs
from splashdam.net.admin.log_dirs import LogDirDescription, describe_log_dirs
from splashdam.net.admin.topics import list_offsets, newest_timestamps
from splashdam.net.clock import Clock
from splashdam.net.cluster.cluster_client import ClusterClient, ClusterClientSettings, open_cluster_client
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST
from splashdam.net.connect import Connect
from splashdam.net.connection.connection import Authenticator

T = TypeVar("T")

_SETTINGS_MS = 15_000
"""Settings are asked for no more often: an answer holds hundreds of them."""


class Inside(Protocol):
    """What only the process of a broker knows."""

    def clients(self) -> Sequence[ClientView]:
        """Return the connections of clients, the oldest first."""
        ...

    def requests(self) -> int:
        """Return how many requests have arrived from clients that are connected now."""
        ...


@asynccontextmanager
async def open_inspector(
    bootstrap: Sequence[tuple[str, int]],
    *,
    connect: Connect,
    clock: Clock,
    authenticator: Authenticator | None = None,
    inside: Inside | None = None,
    client_id: str = "splashdam-inspect",
    timeout_ms: float = 5_000,
) -> AsyncIterator[Inspector]:
    """Provide an `Inspector` for the block. It connects with the first question.

    Args:
        bootstrap: addresses, see `splashdam.net.addresses.parse_bootstrap_servers`.
        connect: opens streams, for example `splashdam.net.connect.TcpConnect`.
        clock: for deadlines, and for the times of what is seen.
        authenticator: authenticates connections, if the brokers require that.
        inside: the broker of this process.
        client_id: sent with each request.
        timeout_ms: the longest wait for an answer.
    """
    settings = ClusterClientSettings(
        client_id=client_id, timeout_ms=timeout_ms, request_timeout_ms=timeout_ms
    )
    async with open_cluster_client(
        bootstrap, connect=connect, clock=clock, settings=settings, authenticator=authenticator
    ) as client:
        yield Inspector(client, clock, inside)


class Inspector:
    """Answers questions about a cluster; made by `open_inspector`. Any number of tasks may use it.

    Every call raises ``KafkaError`` if the cluster does not answer within the time limit.
    """

    def __init__(self, client: ClusterClient, clock: Clock, inside: Inside | None = None) -> None:
        self.clock = clock
        self.inside = inside
        self._client = client
        self._turn = trio.Lock()  # a ClusterClient serves one task at a time
        self._newest: dict[TopicPartition, tuple[int | None, int | None]] = {}
        self._settings: tuple[float, list[SettingView]] | None = None

    async def ask(self, question: Callable[[ClusterClient], Awaitable[T]]) -> T:
        """Call a function of ``splashdam.net.admin``, one at a time."""
        async with self._turn:
            return await question(self._client)

    async def overview(self) -> Overview:
        """Look at brokers, topics, disks, settings and clients.

        What the cluster does not tell this client is None or missing, and named in ``refusals``.
        """
        async with self._turn:
            return await self._overview()

    async def _overview(self) -> Overview:
        client, refusals = self._client, _Refusals()
        cluster = await client.cluster(None)
        led = _led(cluster)
        first = await refusals.instead("first offsets", list_offsets(client, led, EARLIEST), {})
        ends = await refusals.instead("end offsets", list_offsets(client, led, LATEST), {})
        newest = await refusals.instead("the age of records", self._newest_of(led, ends), {})
        disks = await refusals.instead("log directories", describe_log_dirs(client), [])
        settings = await refusals.instead("settings", self._settings_of(cluster), [])
        sizes = _sizes(disks)
        topics = [
            TopicView(
                name=name,
                partitions=tuple(
                    PartitionView(
                        topic_partition=(where := TopicPartition(name, info.partition)),
                        leader=info.leader if info.leader in cluster.nodes else -1,
                        replicas=info.replicas,
                        isr=info.isr,
                        first_offset=first.get(where),
                        end_offset=ends.get(where),
                        size_bytes=sizes.get((info.leader, where)),
                        newest_timestamp_ms=newest.get(where),
                    )
                    for info in topic.partitions
                ),
            )
            for name, topic in sorted(cluster.topics.items())
        ]
        return Overview(
            taken_ms=self.clock.wall_ms(),
            cluster_id=cluster.cluster_id,
            brokers=_brokers(cluster),
            topics=topics,
            disks=[_disk(each) for each in disks],
            settings=settings,
            clients=None if self.inside is None else self.inside.clients(),
            refusals=refusals.sentences,
        )

    async def _newest_of(
        self, led: Sequence[TopicPartition], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """Ask for the partitions that have grown: the answer costs the broker a look into the log."""
        asked = [
            where
            for where in led
            if where not in self._newest or self._newest[where][0] != ends.get(where, -1)
        ]
        try:
            found = await newest_timestamps(self._client, asked)
        except UnsupportedVersionError:  # before Kafka 3.0
            found = {}
        now = {where: (ends.get(where, -1), _time(found[where])) for where in asked if where in found}
        self._newest = {where: now.get(where) or self._newest.get(where, (-1, None)) for where in led}
        return {where: newest for where, (_, newest) in self._newest.items()}

    async def _settings_of(self, cluster: ClusterMetadata) -> list[SettingView]:
        now_ms = self.clock.now_ms()
        if self._settings is not None and now_ms - self._settings[0] < _SETTINGS_MS:
            return self._settings[1]
        found = [
            SettingView(broker_id=node_id, name=name, value=config.value)
            for node_id, node in sorted(cluster.nodes.items())
            for name, config in sorted(
                (await describe_configs(self._client, Resource.BROKER, str(node_id), node=node)).items()
            )
            if not config.is_default
        ]
        self._settings = (now_ms, found)
        return found


class _Refusals:
    """Parts of an answer that the cluster did not give."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    async def instead(self, what: str, answer: Awaitable[T], missing: T) -> T:
        """Wait for an answer; if it is an error, note that and return what stands for it."""
        try:
            return await answer
        except (BrokerResponseError, UnsupportedVersionError) as error:
            self.sentences.append(f"{what}: {message_of(error)}")
            return missing


def _led(cluster: ClusterMetadata) -> list[TopicPartition]:
    """Return the partitions that have a leader which can be asked."""
    return [
        TopicPartition(name, info.partition)
        for name, topic in sorted(cluster.topics.items())
        if not topic.error_code
        for info in topic.partitions
        if info.leader in cluster.nodes
    ]


def _time(timestamp_ms: int) -> int | None:
    return timestamp_ms if timestamp_ms >= 0 else None


def _sizes(disks: Iterable[LogDirDescription]) -> dict[tuple[int, TopicPartition], int]:
    return {
        (disk.broker_id, replica.topic_partition): replica.size_bytes
        for disk in disks
        for replica in disk.replicas
        if not replica.is_future
    }


def _disk(described: LogDirDescription) -> DiskView:
    return DiskView(
        broker_id=described.broker_id,
        path=described.path,
        total_bytes=_known(described.total_bytes),
        free_bytes=_known(described.usable_bytes),
        logs_bytes=sum(each.size_bytes for each in described.replicas),
        error=described.error,
    )


def _known(count: int) -> int | None:
    return count if count >= 0 else None


def _brokers(cluster: ClusterMetadata) -> list[BrokerView]:
    infos = [info for topic in cluster.topics.values() for info in topic.partitions]
    return [
        BrokerView(
            node_id=node_id,
            host=node.host,
            port=node.port,
            rack=node.rack,
            is_controller=node_id == cluster.controller_id,
            leads=sum(info.leader == node_id for info in infos),
            replicas=sum(node_id in info.replicas for info in infos),
        )
        for node_id, node in sorted(cluster.nodes.items())
    ]
