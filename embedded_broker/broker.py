"""The broker: its parts, their start and end; ``open_broker`` runs one inside a trio program."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.configs.topics import allows_unclean_election, topic_settings
from splashdam.embedded_broker.controller.controller import Controller
from splashdam.embedded_broker.controller.inter_broker_client import InterBrokerClient
from splashdam.embedded_broker.controller.journal import CHANGES_NAME, FILE_NAME, DirectoryJournal
from splashdam.embedded_broker.controller.leadership import ClusterView, Leadership, begin_leader_epochs
from splashdam.embedded_broker.controller.producer_ids import ProducerIds
from splashdam.embedded_broker.dynamic_configs.stored import DynamicConfigs
from splashdam.embedded_broker.execution.answers import Address
from splashdam.embedded_broker.execution.turns import Turns
from splashdam.embedded_broker.fetching.replica_fetches import NoReplicas, TakesReplicaFetches
from splashdam.embedded_broker.fetching.sessions import FetchSessions
from splashdam.embedded_broker.groups.coordinator import GroupCoordinator
from splashdam.embedded_broker.groups.group_offsets import GroupOffsets
from splashdam.embedded_broker.producing.fast_produce import ProduceTemplates
from splashdam.embedded_broker.replication.cluster_member import ClusterMember
from splashdam.embedded_broker.security.access import AccessControl
from splashdam.embedded_broker.serving.dispatch import Interception
from splashdam.embedded_broker.serving.receiving import BusyPolling
from splashdam.embedded_broker.serving.registry import registered_guards
from splashdam.embedded_broker.serving.request_memory import RequestMemory
from splashdam.embedded_broker.serving.selector import Selector
from splashdam.embedded_broker.serving.socket_server import (
    OpenListener,
    SocketServer,
    make_listener_security,
    open_listeners,
)
from splashdam.embedded_broker.telemetry.client_metrics import ClientTelemetry
from splashdam.embedded_broker.topics.disk_failures import DiskFailures
from splashdam.embedded_broker.topics.parking import FetchParking
from splashdam.embedded_broker.topics.topics import Topics
from splashdam.embedded_broker.transactions.coordinator import TransactionCoordinator
from splashdam.embedded_broker.transactions.verification import Enrolments
from splashdam.model.broker_errors import BrokerResponseError, KafkaStorageError
from splashdam.model.errors import IllegalStateError
from splashdam.net.clock import Clock, SystemClock
from splashdam.net.connect import address_text
from splashdam.net.listen import Listen, tcp_listen
from splashdam.storage.directories.identity import claim_directory
from splashdam.storage.files.disk import DiskFiles, Files
from splashdam.storage.files.log_file import as_fatal, raised_as_fatal
from splashdam.storage.manager.log_manager import LogManager
from splashdam.storage.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE

if TYPE_CHECKING:
    from splashdam.embedded_broker.replication.replica_manager import Membership
    from splashdam.embedded_broker.security.authentication import TokenValidator
    from splashdam.embedded_broker.security.authorizer import StandardAuthorizer
    from splashdam.embedded_broker.security.users import UserStore
    from splashdam.embedded_broker.serving.listener_security import ListenerSecurity
    from splashdam.model.values import TopicPartition

_log = logging.getLogger(__name__)

_SHORTEST_TURN_S = 0.05
"""Delay of housekeeping behind the event that makes it due."""

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses by which clients on this machine reach a broker that listens on all."""


class Broker:
    """One running broker; made by ``open_broker``. All its parts belong to one trio loop.

    Attributes:
        settings: the present settings; replaced as a whole when dynamic configs change, so do not keep them.
        clock: the clock of all its parts.
        logs: the logs of the partitions on disk.
        topics: looks up, creates and deletes topics.
        parking: the fetches that wait for records.
        fetch_sessions: the fetch sessions of clients and followers (KIP-227).
        busy_polling: decides when the loop may poll the socket of one client.
        turns: limit how much is done for one client before the others have their turn.
        producer_ids: hands out producer ids.
        leadership: the leaders of all partitions.
        controller: the cluster's controller; a single broker has its own.
        member: applies changes of the cluster.
        peers: connections to the other brokers.
        replicas: leads and follows partitions of a cluster.
        groups: the coordinator of consumer groups.
        offsets: the committed offsets of groups.
        transactions: the coordinator of transactions.
        enrolments: asks coordinators about transactions, on this broker or another one.
        configs: the dynamic configs.
        telemetry: metrics that clients push (KIP-714).
        interception: holds an interceptor of requests, if there is one; it may be replaced.
        failure: the reason if the broker has ended by itself.
        access: users, ACLs and quotas.
        authorizer: checks ACLs; None: everything is allowed.
        server: listens, and serves the connections of clients.
        produce_templates: the layouts of usual Produce requests, shared by all clients.
        disk_failures: reports appends that a disk has refused.
        selector: waits for the requests of clients that send usual ones.
        refused_topics: internal topics that could not be created when they were needed.
        request_memory: limits the memory of requests that are being received.
        console_link: of its console, if it has one.
        is_killed: end as by ``kill -9``: without telling the cluster, and without closing logs in order.
    """

    authorizer: StandardAuthorizer | None = None

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        logs: LogManager,
        controller: Controller,
        nursery: trio.Nursery,
        *,
        access: AccessControl,
        place: tuple[Membership | None, Leadership | None],
        own_loop: bool,
    ) -> None:
        membership, leadership = place
        self.settings = settings
        self.clock = clock
        self.logs = logs
        self.parking = FetchParking()
        self.refused_topics: set[str] = set()
        self.disk_failures = DiskFailures(clock, self.parking, logs.root_of, logs.takes_appends)
        self.fetch_sessions = FetchSessions(
            settings.limits.max_incremental_fetch_session_cache_slots, self.parking
        )
        self.busy_polling = BusyPolling(self.parking, own_loop)
        self.turns = Turns(logs.files.run, clock.now_ms)
        self.selector = Selector(self.turns, self.parking, nursery.start_soon)
        self.controller = controller
        self.topics = Topics(controller, logs, lambda: self.settings, self.parking, clock)
        self.leadership: Leadership = leadership or ClusterView(controller, self.node_id)
        logs.offline.on_offline = self.lose
        logs.on_log_start = self.log_start_moved
        self.replicas: TakesReplicaFetches = NoReplicas()
        self._membership = membership
        if membership is not None:
            from splashdam.embedded_broker.replication.replica_manager import ReplicaManager

            line = membership.line or membership.controller
            self.replicas = ReplicaManager(self, line, membership.connect, nursery.start_soon)
        self.peers = InterBrokerClient(
            self.node_id, clock, membership.connect if membership else None, nursery.start_soon
        )
        self.producer_ids = self.leadership.producer_ids
        self.groups = GroupCoordinator(self)
        self.offsets = GroupOffsets(self, self.groups)
        self.transactions = TransactionCoordinator(self, nursery.start_soon)
        self.enrolments = Enrolments(self)
        self.member = ClusterMember(
            self, {CONSUMER_OFFSETS: self.groups, TRANSACTION_STATE: self.transactions}
        )
        self.telemetry = ClientTelemetry(settings.limits.telemetry_max_bytes)
        self.configs = DynamicConfigs(self)
        self.interception = Interception()
        self.failure: KafkaStorageError | None = None
        self.access = access
        self.produce_templates = ProduceTemplates()
        self.server: SocketServer = SocketServer(self, nursery)
        self.request_memory = RequestMemory(settings.limits.request_bytes)
        self.console_link: str | None = None
        self.is_killed = False
        self._nursery = nursery

    @property
    def node_id(self) -> int:
        """The id of this broker, from ``meta.properties``."""
        return self.logs.identity.node_id

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, from ``meta.properties``."""
        return self.logs.identity.cluster_id

    @property
    def listeners(self) -> dict[str, list[Address]]:
        """The advertised addresses, by the listener's name."""
        return self.server.listeners

    @property
    def addresses(self) -> list[Address]:
        """The addresses of the first listener; none if the broker has no TCP port."""
        return next(iter(self.listeners.values()), [])

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the first listener for clients on this machine, several separated by commas.

        Raises:
            IllegalStateError: the broker has no TCP port.
        """
        return self.bootstrap_servers_of(next(iter(self.listeners), ""))

    def bootstrap_servers_of(self, listener: str) -> str:
        """Return ``bootstrap_servers`` of the listener of this name.

        Raises:
            IllegalStateError: the broker has no such listener.
        """
        if not self.listeners:
            raise IllegalStateError("this broker has no TCP port; it was opened with port=None")
        if listener not in self.listeners:
            raise IllegalStateError(
                f"this broker has no listener {listener!r}, only {', '.join(self.listeners)}"
            )
        addresses = dict.fromkeys(self.listeners[listener])
        return ",".join(address_text(_LOOPBACK.get(host, host), port) for host, port in addresses)

    @property
    def users(self) -> UserStore:
        """The users of SASL listeners."""
        return self.access.users

    def lose(self, partitions: list[TopicPartition]) -> None:
        """Wake the fetches of partitions whose disk has failed, and let other brokers lead them."""
        for topic_partition in partitions:
            self.parking.changed(topic_partition)
        if self._membership is not None:
            self._nursery.start_soon(self._let_others_lead, self._membership.controller, partitions)

    def log_start_moved(self, topic_partition: TopicPartition) -> None:
        """Tell waiting fetches and the other replicas that a log starts at a later offset now."""
        self.parking.changed(topic_partition)
        self.replicas.log_start_moved(topic_partition)

    async def _let_others_lead(self, controller: Controller, lost: list[TopicPartition]) -> None:
        """Tell the controller, in a task of its own: the disk may have failed in the middle of anything."""
        for topic_partition in lost:
            self.replicas.stop(topic_partition)
        try:
            controller.lose_replicas(self.node_id, lost)
        except BrokerResponseError as error:
            _log.warning("the controller did not move partitions of the failed disk: %s", error.message)

    def begin(self, opened: Iterable[OpenListener], security: Mapping[str, ListenerSecurity]) -> None:
        """Join the cluster, load the internal topics, and begin to serve clients.

        Args:
            opened: the open listeners.
            security: TLS and SASL of the listeners that are not PLAINTEXT, by their names.

        Raises:
            KafkaStorageError: the disk failed, or the ACLs cannot be read.
        """
        for endpoint, listener in opened:  # no connection is accepted before this task awaits something
            self.server.serve_listener(listener, endpoint, security.get(endpoint.name))
        if self.settings.security.authorizer_class_name:
            registered_guards()  # imported now, not during the first request
            self.authorizer = self.access.authorizer(self.settings.security)
        self.access.watch_quotas(self.server.take_quotas)
        if self.controller.is_alone:
            # Checkpointed high watermarks count only beside other replicas; alone, consumers read to the end.
            for log in self.logs.logs.values():
                log.end_replication()
        self.member.join()
        # Behind ``join``, which has loaded the states; no client is served before this task awaits something.
        self.transactions.settle()
        self._nursery.start_soon(self.keep_house)
        self._nursery.start_soon(self.transactions.keep_house)
        self._nursery.start_soon(self.offsets.keep_house)
        self._nursery.start_soon(self.groups.keep_time)

    async def keep_house(self) -> None:
        """Run the housekeeping of the logs: flushes, checkpoints, retention, …

        If the log manager cannot go on, the broker ends, and ``open_broker`` raises ``failure``.
        """
        while True:
            try:
                delay_ms = await self.logs.step(self.clock.now_ms(), self.clock.wall_ms())
            except KafkaStorageError as error:
                self.failure = error
                self._nursery.cancel_scope.cancel()
                return
            with trio.move_on_after(delay_ms / 1000):
                await self.logs.wait_for_work()
                await trio.sleep(_SHORTEST_TURN_S)  # many segments may fill in this time, and share a flush


@asynccontextmanager
async def open_broker(
    path: str | os.PathLike[str],
    *,
    host: str = "127.0.0.1",
    port: int | None = 0,
    listen: Listen = tcp_listen,
    clock: Clock | None = None,
    files: Files | None = None,
    settings: BrokerSettings | None = None,
    config: Mapping[str, Any] | None = None,
    own_loop: bool = False,
    membership: Membership | None = None,
    leadership: Leadership | None = None,
    token_validator: TokenValidator | None = None,
    access: AccessControl | None = None,
    **options: Any,
) -> AsyncIterator[Broker]:
    """Run a broker on a data directory for the length of an ``async with`` block.

    Args:
        path: data directory; created if missing.
        host: address to listen on, unless the setting ``listeners`` names some.
        port: port to listen on, likewise; 0 for a free one, None for no TCP at all.
        listen: how to listen; TCP by default.
        clock: where the broker reads the time; the machine's by default.
        files: the file system; the disk by default.
        settings: the broker's settings; by default made of ``config`` and ``options``.
        config: settings by Kafka's dotted names, as in ``server.properties``;
            ``splashdam configs`` prints them.
        own_loop: nothing else runs in this trio loop, so it may poll a client's socket for 0.1 ms.
        membership: its place in a cluster; by default the broker is alone.
        leadership: replaces the controller's decisions about leaders.
        token_validator: for OAUTHBEARER: returns whose token it is (`Authenticated`), or raises; it must not
            block. By default unsigned tokens are accepted, as in Kafka.
        access: users, ACLs and quotas that several brokers share; by default those in ``path``.
        options: settings by Python name, as ``BrokerSettings`` has them.

    Raises:
        KafkaConfigurationError: a setting is unknown or illegal.
        IllegalStateError: the directory is in use; the text names by which process.
        KafkaStorageError: the directory cannot be used, or not closed in order: the next start recovers it.
        KafkaConnectionError: the address is taken.
    """
    settings = settings or BrokerSettings.from_options(options, config)
    clock, files = clock or SystemClock(), files or DiskFiles()
    with raised_as_fatal():
        logs, controller = _open_directory(
            path, files, clock, settings, membership=membership, leadership=leadership
        )
    failure: BaseException | None = None
    broker: Broker | None = None
    try:
        access = access or AccessControl(files, logs.root)
        security = make_listener_security(settings, files, access, clock, token_validator)
        opened = [] if port is None else await open_listeners(settings, host, port, listen)
        async with trio.open_nursery() as nursery:
            parts, place = (settings, clock, logs, controller, nursery), (membership, leadership)
            broker = Broker(*parts, access=access, place=place, own_loop=own_loop)
            try:
                with raised_as_fatal():
                    broker.begin(opened, security)
                yield broker
            except BaseException as error:  # leaves as itself below, not wrapped in the nursery's group
                failure = error
            # While connections are still served: the others take over before clients are sent away.
            broker.member.leave(orderly=not (failure or broker.failure or broker.is_killed))
            nursery.cancel_scope.cancel()
        for _, each in opened:  # some are not served if the broker could not begin
            await trio.aclose_forcefully(each)
    finally:
        unclean = logs.close(orderly=broker is None or not broker.is_killed)
    ended = broker.failure or (None if failure else unclean)
    if ended is not None:
        failure = as_fatal(ended)
    if failure is not None:
        raise failure


def _open_directory(
    path: str | os.PathLike[str],
    files: Files,
    clock: Clock,
    settings: BrokerSettings,
    *,
    membership: Membership | None,
    leadership: Leadership | None,
) -> tuple[LogManager, Controller]:
    """Open a data directory for a broker, and make a controller of its own if it is alone.

    Args:
        path: the directory.
        files: the file system.
        clock: the broker's clock.
        settings: the broker's settings.
        membership: its place in a cluster, or None.
        leadership: replaces the controller's decisions about leaders.

    Raises:
        IllegalStateError: the directory is in use.
        KafkaStorageError: it cannot be used, or belongs to another cluster.
    """
    for name, reason in settings.without_effect().items():
        _log.warning("%s has no effect here: %s", name, reason)
    path, view = os.path.abspath(path), leadership
    if membership is not None:
        claim_directory(files, path, settings.node_id, membership.controller.cluster_id)
        view = view or ClusterView(membership.controller, settings.node_id)
    elif _is_of_a_cluster(files, path):
        raise KafkaStorageError(
            f"{path} is the directory of a cluster; open it with EmbeddedCluster, or one of its brokers "
            f"alone: {path}/broker-1"
        )
    logs = LogManager.open(
        files,
        path,
        now_ms=clock.wall_ms(),
        settings_for=partial(topic_settings, settings.topic_defaults),
        node_id=settings.node_id,
        settings=settings.directories,
        log_dirs=[os.path.join(path, each.strip()) for each in settings.log_dirs.split(",") if each.strip()],
        hosts=partial(view.hosts, settings.node_id) if view else lambda _: True,
    )
    try:
        if leadership is not None:
            begin_leader_epochs(leadership, logs)
        return logs, membership.controller if membership else _own_controller(logs, settings)
    except BaseException:
        logs.close()
        raise


def _is_of_a_cluster(files: Files, path: str) -> bool:
    """Whether the path is a cluster's directory; false if it cannot be read, since opening it raises why."""
    with suppress(KafkaStorageError):
        return any(files.size_bytes(f"{path}/{name}") is not None for name in (FILE_NAME, CHANGES_NAME))
    return False


def _own_controller(logs: LogManager, settings: BrokerSettings) -> Controller:
    """Return the controller of a broker that is alone; its logs are the only record of used producer ids."""
    known_ids = (entry.producer_id for log in logs.logs.values() for entry in log.producers)
    ids = ProducerIds(logs.files, logs.root, above=max(known_ids, default=-1))
    is_unclean = partial(allows_unclean_election, settings.topic_defaults)
    return Controller(DirectoryJournal(logs), ids, is_unclean)
