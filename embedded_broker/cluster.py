"""A cluster of several brokers in one trio program, each with a directory and a port of its own."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import trio

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.configs.security import PORTS, check_port
from splashdam.embedded_broker.configs.topics import allows_unclean_election
from splashdam.embedded_broker.controller.controller import Controller
from splashdam.embedded_broker.controller.election import changed, moved
from splashdam.embedded_broker.controller.journal import CHANGES_NAME, FILE_NAME, Journal
from splashdam.embedded_broker.controller.producer_ids import ProducerIds
from splashdam.embedded_broker.replication.replica_manager import Membership
from splashdam.embedded_broker.security.access import AccessControl
from splashdam.embedded_broker.serving.dispatch import Interception
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.errors import (
    IllegalStateError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
)
from splashdam.model.values import TopicPartition
from splashdam.net.clock import Clock, SystemClock
from splashdam.net.connect import address_text, socket_pair, stream_of
from splashdam.net.listen import Listen, tcp_listen
from splashdam.storage.directories.identity import META_NAME
from splashdam.storage.directories.written_by import claim_format
from splashdam.storage.files.disk import DiskFiles, Files

if TYPE_CHECKING:
    from splashdam.embedded_broker.security.authentication import TokenValidator

_log = logging.getLogger(__name__)

_STARTING_S = 10.0
"""How long a broker waits for another one that is starting."""


@attrs.define(eq=False)
class _Node:
    """One broker of the cluster, running or not.

    Attributes:
        node_id: its id.
        port: the port to listen on; 0: the first start chooses a free one, which later starts keep.
        broker: the broker, while it runs.
        stop: set to stop it.
        ended: set once it has stopped.
        started: while it is starting; set when the start has succeeded or failed.
    """

    node_id: int
    port: int | None
    broker: Broker | None = None
    stop: trio.Event = attrs.field(factory=trio.Event)
    ended: trio.Event = attrs.field(factory=trio.Event)
    started: trio.Event | None = None


class Cluster:
    """A running cluster; made by ``open_cluster``. All methods belong to its trio loop.

    Attributes:
        controller: of all brokers; its state is ``controller.state``.
        access: users, ACLs and quotas of all brokers.
        interception: holds an interceptor of the requests of all brokers, if there is one.
    """

    def __init__(self, opened: ClusterOptions, controller: Controller, nursery: trio.Nursery) -> None:
        self.controller = controller
        self.access = AccessControl(opened.files, opened.path)
        self.interception = Interception()
        self._options = opened
        self._nursery = nursery
        port = opened.port
        self._nodes = {
            node_id: _Node(node_id, port + node_id - 1 if port else port)
            for node_id in range(1, opened.brokers + 1)
        }

    @property
    def nodes(self) -> list[int]:
        """The ids of all brokers."""
        return list(self._nodes)

    @property
    def is_in_sync(self) -> bool:
        """Whether all replicas of all partitions are in sync."""
        return all(set(each.isr) == set(each.replicas) for each in self.controller.state.partitions.values())

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of all brokers, running or not, separated by commas.

        Raises:
            IllegalStateError: they have no TCP port.
        """
        if self._options.port is None:
            raise IllegalStateError("these brokers have no TCP port; they were opened with port=None")
        ports = [node.port or 0 for node in self._nodes.values()]
        return ",".join(address_text(self._options.host, port) for port in ports)

    def broker(self, node: int) -> Broker:
        """Return a running broker.

        Raises:
            IllegalStateError: it is down, or no broker has this id.
        """
        broker = self._node(node).broker
        if broker is None:
            raise IllegalStateError(f"broker {node} is down")
        return broker

    def is_up(self, node: int) -> bool:
        """Return whether a broker runs.

        Raises:
            IllegalStateError: no broker has this id.
        """
        return self._node(node).broker is not None

    def _node(self, node: int) -> _Node:
        if node not in self._nodes:
            raise IllegalStateError(
                f"there is no broker {node}; there are {', '.join(map(str, self._nodes))}"
            )
        return self._nodes[node]

    # --- brokers come and go --------------------------------------------------------------------------------

    async def begin(self, settings: BrokerSettings) -> None:
        """Start all brokers.

        Raises:
            As ``start``.
        """
        for node in self._nodes:
            await self.start(node)
        # Only now: before it has registered, a broker that is about to start counts as down.
        self.controller.settle()
        self._nursery.start_soon(self._rebalance_leaders, settings)

    async def start(self, node: int) -> None:
        """Start a broker that is down, at its port; return once clients can connect.

        Raises:
            IllegalStateError: it runs.
            KafkaConnectionError: its port is taken meanwhile.
            KafkaStorageError: its directory cannot be used.
        """
        entry = self._node(node)
        if entry.broker is not None or entry.started is not None:
            raise IllegalStateError(f"broker {node} runs already")
        entry.stop, entry.ended, entry.started = trio.Event(), trio.Event(), trio.Event()
        try:
            await self._nursery.start(self._run, entry)
        finally:
            entry.started.set()
            entry.started = None

    async def stop(self, node: int) -> None:
        """Stop a broker in order: other brokers take over its partitions first. Ignored if it is down."""
        entry = self._node(node)
        if entry.broker is not None:
            entry.stop.set()
            await entry.ended.wait()

    async def kill(self, node: int) -> None:
        """End a broker as ``kill -9`` does: connections break, and its directory stays as it is.

        The others notice at once; in a real cluster that takes ``broker.session.timeout.ms``.
        """
        entry = self._node(node)
        if entry.broker is not None:
            entry.broker.is_killed = True
            entry.broker.member.leave(orderly=False)
            await self.stop(node)

    async def restart(self, node: int) -> None:
        """Stop a broker in order and start it again.

        Raises:
            As ``start``.
        """
        await self.stop(node)
        await self.start(node)

    async def _run(self, node: _Node, *, task_status: trio.TaskStatus[None]) -> None:
        try:
            await self._live(node, task_status)
        except KafkaError as error:
            if node.broker is None:
                raise
            _log.error("broker %d has ended: %s", node.node_id, error)
        finally:
            node.broker = None
            node.ended.set()

    async def _live(self, node: _Node, task_status: trio.TaskStatus[None]) -> None:
        opened = self._options
        async with open_broker(
            f"{opened.path}/broker-{node.node_id}",
            host=opened.host,
            port=node.port,
            listen=opened.listen,
            clock=opened.clock,
            files=opened.files,
            settings=opened.settings(node.node_id),
            membership=Membership(self.controller, self._connect),
            access=self.access,
            token_validator=opened.token_validator,
        ) as node.broker:
            node.broker.interception = self.interception
            if node.broker.addresses:
                node.port = node.broker.addresses[0].port
            task_status.started()
            await node.stop.wait()

    async def _connect(self, node_id: int) -> trio.abc.Stream:
        """Open a stream to another broker: in the same process, without port and password."""
        node = self._nodes.get(node_id)
        if node is None:
            raise KafkaConnectionError(f"this cluster was opened without broker {node_id}")
        await trio.lowlevel.checkpoint()
        if node.started is not None:
            with trio.move_on_after(_STARTING_S):
                await node.started.wait()
        if node.broker is None or node.broker.is_killed:
            raise KafkaConnectionError(f"broker {node_id} is down")
        ours, theirs = map(stream_of, socket_pair())
        try:
            node.broker.server.adopt(theirs, is_trusted=True)
        except KafkaConnectionError as error:  # it is stopping, or was killed a moment ago
            for end in (ours, theirs):
                await trio.aclose_forcefully(end)
            raise KafkaConnectionError(f"broker {node_id} is down") from error
        return ours

    # --- leaders and replicas ---------------------------------------------------------------------------

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the node id of a partition's leader, -1 if the partition has no leader.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
        """
        return self.controller.partition(TopicPartition(topic, partition)).leader

    def isr_of(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """Return the node ids of the in-sync replicas.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
        """
        return self.controller.partition(TopicPartition(topic, partition)).isr

    def replicas_of(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """Return the node ids of the replicas, the preferred leader first.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
        """
        return self.controller.partition(TopicPartition(topic, partition)).replicas

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make another in-sync replica the leader of a partition, in the next leader epoch.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
            BrokerResponseError: INELIGIBLE_REPLICA (107): ``to`` is down or not in sync.
        """
        where, state = TopicPartition(topic, partition), self.controller.state
        self.controller.change_partitions(
            {where: moved(self.controller.partition(where), to, state.is_eligible)}
        )

    def elect_preferred_leaders(self) -> None:
        """Make the first replica of each partition its leader, if it is in sync."""
        state = self.controller.state
        self.controller.change_partitions(
            {each: changed(now, state.is_eligible, preferred=True) for each, now in state.partitions.items()}
        )

    async def _rebalance_leaders(self, settings: BrokerSettings) -> None:
        while settings.replication.auto_leader_rebalance_enable:
            await trio.sleep(settings.replication.leader_imbalance_check_interval_seconds)
            self.elect_preferred_leaders()


@asynccontextmanager
async def open_cluster(
    path: str | os.PathLike[str],
    brokers: int = 3,
    *,
    racks: Sequence[str | None] = (),
    host: str = "127.0.0.1",
    port: int | None = 0,
    listen: Listen = tcp_listen,
    clock: Clock | None = None,
    files: Files | None = None,
    config: Mapping[str, Any] | None = None,
    token_validator: TokenValidator | None = None,
    interception: Interception | None = None,
    **settings: Any,
) -> AsyncIterator[Cluster]:
    """Run a cluster for the length of an ``async with`` block.

    Topics, records, leaders, offsets and dynamic configs are kept for the next time.

    Args:
        path: directory; created if missing. It contains that of each broker: ``broker-1`` and so on.
        brokers: how many; their node ids are 1, 2, ….
        racks: ``broker.rack`` of each; by default none.
        host: address to listen on.
        port: of the first broker, the others have those that follow; 0 for free ones, None for none.
        listen: how to listen; TCP by default.
        clock: of the brokers; the machine's by default.
        files: the file system; the disk by default.
        config: settings of all brokers by Kafka's dotted names, as in ``server.properties``.
            ``default.replication.factor`` is 3 here, or as many as there are brokers.
        token_validator: for OAUTHBEARER, see ``open_broker``.
        interception: for faults and request logs; one of its own by default.
        settings: the same by Python name.

    Raises:
        KafkaConfigurationError: a setting is unknown or illegal.
        IllegalStateError: a directory is in use; the text names by which process.
        KafkaStorageError: a directory cannot be used, or is another cluster's.
        KafkaConnectionError: an address is taken.
    """
    opened = ClusterOptions(
        path=path,
        brokers=brokers,
        racks=racks,
        host=host,
        port=port,
        listen=listen,
        clock=clock or SystemClock(),
        files=files or DiskFiles(),
        token_validator=token_validator,
        options=settings,
        config=config or {},
    )
    common = opened.settings(1)
    failure: BaseException | None = None
    with _directory(opened, common) as controller:
        async with trio.open_nursery() as nursery:
            cluster = Cluster(opened, controller, nursery)
            cluster.interception = interception or cluster.interception
            try:
                await cluster.begin(common)
                yield cluster
            except BaseException as error:  # leaves as itself below, not wrapped in the nursery's group
                failure = error
            # Before the brokers stop one after the other: no leadership may move to the last one, on which
            # the next start would have to wait.
            controller.end()
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


@contextmanager
def _directory(opened: ClusterOptions, settings: BrokerSettings) -> Iterator[Controller]:
    """Lock the cluster's directory, and yield the controller with the state that is stored there."""
    opened.files.make_directory(opened.path)
    names = {name for name, _ in opened.files.list_directory(opened.path)}
    if META_NAME in names and not names & {FILE_NAME, CHANGES_NAME}:
        raise KafkaStorageError(
            f"{opened.path} is the data directory of a single broker; open it with EmbeddedBroker, or give "
            "the cluster a directory of its own"
        )
    lock, journal = opened.files.lock(opened.path), Journal(opened.files, opened.path)
    try:
        claim_format(opened.files, opened.path)
        ids = ProducerIds(opened.files, opened.path, above=-1)
        controller = Controller(journal, ids, partial(allows_unclean_election, settings.topic_defaults))
        controller.begin(journal.read())
        yield controller
    finally:
        journal.close()
        lock.release()


def _absolute(path: str | os.PathLike[str]) -> str:
    return os.path.abspath(path)


@attrs.frozen(kw_only=True)
class ClusterOptions:
    """The arguments of `open_cluster`, checked.

    Raises:
        KafkaConfigurationError: ``brokers`` or ``port`` is out of range, a node id is given, or the number of
            racks is not that of the brokers.
    """

    path: str = attrs.field(converter=_absolute)
    brokers: int
    racks: Sequence[str | None] = ()
    host: str
    port: int | None
    listen: Listen
    clock: Clock
    files: Files
    token_validator: TokenValidator | None
    options: Mapping[str, Any]
    config: Mapping[str, Any]

    def __attrs_post_init__(self) -> None:
        """Refuse illegal numbers of brokers and ports, and node ids: the cluster gives them itself."""
        if type(self.brokers) is not int or self.brokers < 1:
            raise KafkaConfigurationError(f"brokers={self.brokers!r}: it is a whole number, 1 or more")
        check_port(self.port)
        if self.port and self.port > PORTS - self.brokers:
            text = (
                f"port={self.port}: {self.brokers} brokers have ports from there on, all of 1 to {PORTS - 1}"
            )
            raise KafkaConfigurationError(text)
        for name in ("node_id", "node.id", "broker.id"):
            if name in self.options or name in self.config:
                raise KafkaConfigurationError(
                    f"{name} cannot be set for a cluster: the node ids of its brokers are 1 to {self.brokers}"
                )

        self._check_racks()

    def _check_racks(self) -> None:
        if not self.racks:
            return
        if isinstance(self.racks, str) or len(self.racks) != self.brokers:
            raise KafkaConfigurationError(
                f"racks={self.racks!r}: one for each of the {self.brokers} brokers, or none at all"
            )
        if "broker_rack" in self.options or "broker.rack" in self.config:
            raise KafkaConfigurationError("racks says where each broker stands; leave out broker.rack")

    def settings(self, node_id: int) -> BrokerSettings:
        """Return the settings of one broker.

        Raises:
            KafkaConfigurationError: one is unknown or illegal.
        """
        options = {**self.options, "node_id": node_id}
        if self.racks:
            options["broker_rack"] = self.racks[node_id - 1] or ""
        if not {"default_replication_factor", "default.replication.factor"} & {*options, *self.config}:
            options["default_replication_factor"] = min(3, self.brokers)
        return BrokerSettings.from_options(options, self.config)
