"""Look at a cluster through the Kafka protocol, and at the broker of this process through `Inside`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

import trio

from splashdam.model.broker_errors import BrokerResponseError, UnsupportedVersionError
from splashdam.model.cluster import ClusterMetadata
from splashdam.model.errors import ProtocolError, message_of
from splashdam.model.values import TopicPartition
from splashdam.model.views.cluster import (
    BrokerView,
    ClientView,
    DiskView,
    GroupPartitionView,
    GroupView,
    HeldBackView,
    MemberView,
    Overview,
    PartitionView,
    RebalanceView,
    SettingView,
    TopicView,
    TransactionView,
)
from splashdam.model.views.log import Logs
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.admin.configs import Resource, describe_configs
from splashdam.net.admin.groups import committed_offsets, describe_group, list_groups
from splashdam.net.admin.log_dirs import LogDirDescription, describe_log_dirs
from splashdam.net.admin.producers import describe_producers
from splashdam.net.admin.topics import list_offsets, newest_timestamps
from splashdam.net.admin.transactions import (
    UNENDED,
    ListedTransaction,
    describe_transaction,
    list_transactions,
)
from splashdam.net.clock import Clock, SystemClock
from splashdam.net.cluster.cluster_client import ClusterClient, ClusterClientSettings, open_cluster_client
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST
from splashdam.net.connect import Connect, TcpConnect
from splashdam.net.connection.connection import Authenticator

T = TypeVar("T")

_SETTINGS_MS = 15_000
"""Settings are asked for no more often: an answer holds hundreds of them."""


class Inside(Protocol):
    """What only the process of a broker knows.

    Attributes:
        logs: of the broker; None if they are not shown.
    """

    @property
    def logs(self) -> Logs | None: ...

    def clients(self) -> Sequence[ClientView]:
        """Return the connections of clients, the oldest first."""
        ...

    def requests(self) -> int:
        """Return how many requests have arrived from clients that are connected now."""
        ...

    def last_rebalance(self, group_id: str) -> RebalanceView | None:
        """Return the last rebalance of a group that this broker coordinates."""
        ...


@asynccontextmanager
async def open_inspector(
    bootstrap: str | Sequence[tuple[str, int]],
    *,
    connect: Connect | None = None,
    clock: Clock | None = None,
    authenticator: Authenticator | None = None,
    inside: Inside | None = None,
    client_id: str = "splashdam-inspect",
    timeout_ms: float = 5_000,
) -> AsyncIterator[Inspector]:
    """Provide an `Inspector` for the block. It connects with the first question.

    Args:
        bootstrap: addresses as pairs, or as text: ``"a:9092,b:9092"``.
        connect: opens streams; by TCP by default.
        clock: for deadlines, and for the times of what is seen; the machine's by default.
        authenticator: authenticates connections, if the brokers require that.
        inside: the broker of this process.
        client_id: sent with each request.
        timeout_ms: the longest wait for an answer.
    """
    settings = ClusterClientSettings(
        client_id=client_id, timeout_ms=timeout_ms, request_timeout_ms=timeout_ms
    )
    if isinstance(bootstrap, str):
        bootstrap = parse_bootstrap_servers(bootstrap)
    connect, clock = connect or TcpConnect(), clock or SystemClock()
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

    async def groups(self, ends: Mapping[TopicPartition, int | None], most: int = 100) -> list[GroupView]:
        """Look at consumer groups with their members and lags.

        Args:
            ends: end offsets, for example of an overview.
            most: how many are described; others have their names and states alone.
        """
        async with self._turn:
            listed = await list_groups(self._client)
            return [
                await self._group(each.group_id, each.state, each.group_type, ends)
                if number < most
                else GroupView(group_id=each.group_id, state=each.state, group_type=each.group_type)
                for number, each in enumerate(listed)
            ]

    async def group(self, group_id: str, ends: Mapping[TopicPartition, int | None]) -> GroupView | None:
        """Look at one group; None if there is none."""
        async with self._turn:
            found = await self._group(group_id, "", "", ends)
            return found if found.state else None

    async def _group(
        self, group_id: str, state: str, group_type: str, ends: Mapping[TopicPartition, int | None]
    ) -> GroupView:
        try:
            found = await describe_group(self._client, group_id)
            committed = {} if found is None else await committed_offsets(self._client, group_id)
        except (BrokerResponseError, ProtocolError) as error:  # of this group alone
            problem = message_of(error)
            return GroupView(group_id=group_id, state=state, group_type=group_type, problem=problem)
        if found is None:  # it was deleted meanwhile
            return GroupView(group_id=group_id, state=state, group_type=group_type)
        readers = {where: member.member_id for member in found.members for where in member.assignment}
        return GroupView(
            group_id=group_id,
            state=found.state,
            group_type=found.group_type,
            assignor=found.assignor,
            members=tuple(
                MemberView(
                    member_id=each.member_id,
                    instance_id=each.instance_id,
                    client_id=each.client_id,
                    host=each.host,
                    partitions=each.assignment,
                )
                for each in found.members
            ),
            partitions=tuple(
                GroupPartitionView(
                    topic_partition=where,
                    committed_offset=committed[where].offset if where in committed else None,
                    end_offset=ends.get(where),
                    member_id=readers.get(where),
                )
                for where in sorted(committed.keys() | readers.keys())
            ),
            last_rebalance=None if self.inside is None else self.inside.last_rebalance(group_id),
        )

    async def transactions(self, most: int = 100) -> list[TransactionView]:
        """Look at transactional ids, those with an open transaction first.

        Args:
            most: how many are described; others have their names, states and producer ids alone.

        Raises:
            UnsupportedVersionError: the cluster is older than Kafka 3.0.
        """
        async with self._turn:
            listed = await list_transactions(self._client)
            listed.sort(key=lambda each: each.state not in UNENDED)
            found = [await self._transaction(each) for each in listed[:most]]
        found.sort(key=_oldest_open_first)
        return found + [
            TransactionView(
                transactional_id=each.transactional_id, state=each.state, producer_id=each.producer_id
            )
            for each in listed[most:]
        ]

    async def _transaction(self, listed: ListedTransaction) -> TransactionView:
        each = await describe_transaction(self._client, listed.transactional_id)
        return TransactionView(
            transactional_id=each.transactional_id,
            state=each.state or listed.state,
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            # A coordinator remembers the start of a transaction that has ended, too.
            start_ms=_time(each.start_ms) if each.state in UNENDED else None,
            timeout_ms=each.timeout_ms,
            partitions=each.partitions,
        )

    async def held_back(self, ends: Mapping[TopicPartition, int | None]) -> list[HeldBackView]:
        """Look for the transaction that holds back the last stable offset of each partition.

        Args:
            ends: the partitions to look at, with their end offsets.

        Raises:
            UnsupportedVersionError: the cluster is older than Kafka 3.0.
        """
        async with self._turn:
            # Before and afterwards: one that begins or ends meanwhile does not hang.
            ids = await self._unended()
            active = await describe_producers(self._client, ends)
            ids |= await self._unended()
        found = []
        for where, producers in sorted(active.items()):
            opened = [each for each in producers if each.txn_start_offset >= 0]
            if not opened:
                continue
            first, end = min(opened, key=lambda each: each.txn_start_offset), ends.get(where)
            found.append(
                HeldBackView(
                    topic_partition=where,
                    start_offset=first.txn_start_offset,
                    hidden_records=None if end is None else end - first.txn_start_offset,
                    producer_id=first.producer_id,
                    producer_epoch=first.producer_epoch,
                    last_write_ms=first.last_timestamp_ms,
                    transactional_id=ids.get(first.producer_id),
                )
            )
        return found

    async def _unended(self) -> dict[int, str]:
        """Return the transactional ids of transactions that coordinators have not ended, by producer id."""
        listed = await list_transactions(self._client, UNENDED)
        return {each.producer_id: each.transactional_id for each in listed}

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


def _oldest_open_first(each: TransactionView) -> tuple[bool, int, str]:
    return each.start_ms is None, each.start_ms or 0, each.transactional_id


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
