"""A cluster for programs that are not written in trio: its brokers share a daemon thread."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from splashdam.embedded_broker.cluster import Cluster, open_cluster
from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.embedded import LoopThread, RunsInThread
from splashdam.model.errors import KafkaTimeoutError
from splashdam.net.clock import LoopClock
from splashdam.storage.files.disk import DiskFiles

if TYPE_CHECKING:
    from splashdam.embedded_broker.security.authentication import TokenValidator
    from splashdam.embedded_broker.security.users import UserStore

R = TypeVar("R")

_LOOK_S = 0.005


class EmbeddedCluster(RunsInThread[Cluster]):
    """Several brokers in a daemon thread, as a blocking context manager::

        with EmbeddedCluster("./data", brokers=3) as cluster:
            KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)

    They replicate and elect leaders as Kafka does. Each has a directory and a port of its own, and keeps both
    over restarts. The next start finds everything as it was. In a forked child every call raises
    ``IllegalStateError``. In a trio program use ``open_cluster``.

    Args:
        path: directory; made if missing. ``broker-1`` and so on in it are data directories of Kafka's.
        brokers: how many; their node ids are 1, 2, ….
        racks: ``broker.rack`` of each, as in ``("a", "b", "c")``; by default none. Consumers read from
            replicas in their rack if ``replica.selector.class`` is
            ``org.apache.kafka.common.replica.RackAwareReplicaSelector``.
        port: TCP port of the first broker, the others have those that follow; 0 for free ones.
        host: address to listen on.
        config: settings of all brokers by Kafka's dotted names, which ``splashdam configs`` prints:
            ``{"min.insync.replicas": 2}``. ``default.replication.factor`` is 3 here, or as many as there are
            brokers.
        token_validator: for OAUTHBEARER, see ``open_broker``.
        fsync: see ``EmbeddedBroker``.
        clock: for all times; by default one that the attribute ``clock`` steers.
            `splashdam.net.clock.SystemClock` is the machine's.
        settings: as ``BrokerSettings``, by Python name: ``min_insync_replicas=2``.

    Raises:
        KafkaConfigurationError: a setting is unknown or illegal.
    """

    _WHAT = "cluster"

    def __init__(
        self,
        path: str | os.PathLike[str],
        brokers: int = 3,
        *,
        racks: Sequence[str | None] = (),
        port: int = 0,
        host: str = "127.0.0.1",
        config: Mapping[str, Any] | None = None,
        token_validator: TokenValidator | None = None,
        fsync: bool = True,
        clock: LoopClock | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(clock)
        BrokerSettings.from_options(settings, config)
        self._path = path
        self._opened = partial(
            open_cluster,
            path,
            brokers,
            racks=racks,
            host=host,
            port=port,
            clock=self._clock,
            files=None if fsync else DiskFiles(fsync=False),
            config=config,
            token_validator=token_validator,
            interception=self._interception,
            **settings,
        )

    def _new_thread(self) -> LoopThread[Cluster]:
        return LoopThread(self._WHAT, self._path, self._opened, self._clock)

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of all brokers, running or not, separated by commas.

        Raises:
            IllegalStateError: the cluster does not run, or this is a forked child.
        """
        return self._thread().value.bootstrap_servers

    @property
    def nodes(self) -> list[int]:
        """The node ids of all brokers.

        Raises:
            IllegalStateError: as ``bootstrap_servers``.
        """
        return self._thread().value.nodes

    @property
    def users(self) -> UserStore:
        """The users of SASL listeners; they can be changed whether the cluster runs or not."""
        from splashdam.embedded_broker.security.users import UserStore

        return UserStore(DiskFiles(), os.path.abspath(self._path))

    # --- brokers come and go --------------------------------------------------------------------------------

    def is_up(self, node: int) -> bool:
        return self._ask(lambda cluster: cluster.is_up(node))

    def start(self, node: int | None = None) -> None:
        """Start a broker that is down, at its port, or by default all; return once clients can connect.

        Raises:
            IllegalStateError: it runs already, or a directory is in use (the text names by which process).
            KafkaConnectionError: a port is taken.
            KafkaStorageError: a directory cannot be used.
        """
        if node is None:
            self._begin()
        else:
            self._call(lambda cluster: cluster.start(node))

    def stop(self, node: int | None = None, *, timeout_s: float | None = None) -> None:
        """Stop a broker in order: other brokers take over its partitions first. By default stop all together.

        Brokers that are down are ignored.

        Raises:
            KafkaTimeoutError: not all have ended within ``timeout_s`` seconds; they go on in their thread.
            IllegalStateError: this is a forked child.
        """
        if node is None:
            self._end(timeout_s)
        else:
            self._call(lambda cluster: cluster.stop(node))

    def kill(self, node: int) -> None:
        """End a broker as ``kill -9`` does: connections break, and its directory stays as it is.

        The others notice at once; in a real cluster that takes ``broker.session.timeout.ms``.
        """
        self._call(lambda cluster: cluster.kill(node))

    def restart(self, node: int) -> None:
        """Stop a broker in order and start it again.

        Raises:
            As ``start``.
        """
        self._call(lambda cluster: cluster.restart(node))

    # --- leaders and replicas ---------------------------------------------------------------------------

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the node id of a partition's leader, -1 if the partition has no leader.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
        """
        return self._ask(lambda cluster: cluster.leader_of(topic, partition))

    def isr_of(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """Return the node ids of the in-sync replicas.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
        """
        return self._ask(lambda cluster: cluster.isr_of(topic, partition))

    def replicas_of(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """Return the node ids of the replicas, the preferred leader first.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
        """
        return self._ask(lambda cluster: cluster.replicas_of(topic, partition))

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make another in-sync replica the leader of a partition, in the next leader epoch.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
            BrokerResponseError: INELIGIBLE_REPLICA (107): ``to`` is down or not in sync.
        """
        self._ask(lambda cluster: cluster.move_leader(topic, partition, to))

    def elect_preferred_leaders(self) -> None:
        """Make the first replica of each partition its leader, if it is in sync."""
        self._ask(lambda cluster: cluster.elect_preferred_leaders())

    def wait_in_sync(self, timeout_s: float = 30.0) -> None:
        """Return once all replicas of all partitions are in sync.

        Raises:
            KafkaTimeoutError: they are not, after ``timeout_s`` seconds.
        """
        self._call(lambda cluster: _wait_in_sync(cluster, timeout_s))

    def _call(self, function: Callable[[Cluster], Awaitable[R]]) -> R:
        return self._thread().call(function)

    def _ask(self, function: Callable[[Cluster], R]) -> R:
        async def ask(cluster: Cluster) -> R:
            return function(cluster)

        return self._call(ask)


async def _wait_in_sync(cluster: Cluster, timeout_s: float) -> None:
    with trio.move_on_after(timeout_s):
        while True:
            if cluster.is_in_sync:
                return
            await trio.sleep(_LOOK_S)
    raise KafkaTimeoutError(f"not all replicas are in sync after {timeout_s:g} s")
