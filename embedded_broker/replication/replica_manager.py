"""The replicas of one broker: which it leads and which it follows, by the controller's state.

A partition with a single replica is not managed here, and appends to it cost nothing extra. Each of the
others has a `Partition`, and there is a `LeaderFetcher` for every other broker that leads some of them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import attrs
import trio

from splashdam.embedded_broker.controller.state import NOBODY, ClusterChange
from splashdam.embedded_broker.replication.partition import Partition
from splashdam.model.broker_errors import BrokerResponseError, KafkaStorageError, NotLeaderOrFollowerError
from splashdam.storage.background import log_failures
from splashdam.storage.log import LogState

if TYPE_CHECKING:
    from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
    from splashdam.embedded_broker.controller.controller import Controller
    from splashdam.embedded_broker.controller.inter_broker_client import ConnectToBroker
    from splashdam.embedded_broker.controller.state import (
        ClusterState,
        IsrAnswer,
        IsrProposal,
        PartitionState,
    )
    from splashdam.embedded_broker.fetching.replica_fetches import ReplicaFetch
    from splashdam.embedded_broker.replication.isr import Follower
    from splashdam.embedded_broker.replication.replica_fetcher import LeaderFetcher
    from splashdam.embedded_broker.topics.parking import FetchParking
    from splashdam.embedded_broker.topics.topics import Topics
    from splashdam.model.values import TopicPartition
    from splashdam.net.clock import Clock
    from splashdam.storage.log import Log
    from splashdam.storage.manager.log_manager import LogManager

_log = logging.getLogger(__name__)


class ControlsPartitions(Protocol):
    """What the replicas of a broker ask the controller."""

    @property
    def state(self) -> ClusterState: ...

    def alter_partitions(
        self, node_id: int, broker_epoch: int, proposals: Mapping[TopicPartition, IsrProposal]
    ) -> Mapping[TopicPartition, IsrAnswer]:
        """Propose ISRs (AlterPartition); raises BrokerResponseError if all are refused."""
        ...


class HasReplicas(Protocol):
    """What the replicas need of their broker; the attributes are those of `Broker`."""

    settings: BrokerSettings
    clock: Clock
    logs: LogManager
    topics: Topics
    parking: FetchParking

    @property
    def node_id(self) -> int: ...

    def lose(self, partitions: list[TopicPartition]) -> None:
        """The disk below some logs has failed: move their leadership to other brokers."""
        ...


class ReplicaManager:
    """The replicas of one broker.

    Args:
        broker: the broker.
        controller: of its cluster.
        connect: opens a stream to another broker.
        start_soon: starts a task in the broker's nursery.
    """

    def __init__(
        self,
        broker: HasReplicas,
        controller: ControlsPartitions,
        connect: ConnectToBroker,
        start_soon: Callable[[Callable[[], Awaitable[object]]], object],
    ) -> None:
        self.partitions: dict[TopicPartition, Partition] = {}
        self._watched: dict[Partition, None] = {}
        self._proposing: dict[Partition, None] = {}
        self._broker = broker
        self._controller = controller
        self._connect = connect
        self._start_soon = start_soon
        self._fetchers: dict[int, LeaderFetcher] = {}
        self._is_watching = False
        self._refused: dict[TopicPartition, PartitionState] = {}

    # --- for partitions and fetchers ------------------------------------------------------------------------

    @property
    def node_id(self) -> int:
        return self._broker.node_id

    @property
    def broker_epoch(self) -> int:
        """The broker epoch of its registration; -1 before it has registered."""
        known = self._controller.state.brokers.get(self.node_id)
        return -1 if known is None else known.epoch

    @property
    def settings(self) -> BrokerSettings:
        return self._broker.settings

    @property
    def clock(self) -> Clock:
        return self._broker.clock

    @property
    def lag_time_max_ms(self) -> float:
        return self._broker.settings.replication.replica_lag_time_max_ms

    def now_ms(self) -> float:
        return self._broker.clock.now_ms()

    def is_eligible(self, node_id: int) -> bool:
        """Whether a broker may join an ISR."""
        return self._controller.state.is_eligible(node_id)

    def propose(self, partition: Partition) -> None:
        """Have ``settle_isrs`` send the partition's proposal, together with those of others."""
        self._proposing[partition] = None

    def settle_isrs(self) -> None:
        """Send all pending proposals to the controller in one request.

        The controller makes them durable with one sync, however many they are: after a restart all followers
        of a broker catch up within a few fetches.
        """
        proposing, self._proposing = self._proposing, {}
        asked = {each: proposal for each in proposing if (proposal := each.proposal) is not None}
        if not asked:
            return
        answers: Mapping[TopicPartition, IsrAnswer]
        proposals = {each.log.topic_partition: proposal for each, proposal in asked.items()}
        try:
            answers = self._controller.alter_partitions(self.node_id, self.broker_epoch, proposals)
        except BrokerResponseError as error:
            answers = dict.fromkeys(proposals, error)
        for partition, proposal in asked.items():
            topic_partition = partition.log.topic_partition
            with log_failures(f"node {self.node_id}: leading {topic_partition}"):
                partition.answered(proposal, answers[topic_partition])

    def high_watermark_moved(self, topic_partition: TopicPartition) -> None:
        """Wake the fetches that wait for this partition."""
        self._broker.parking.high_watermark_moved(topic_partition)

    def log_failed(self, topic_partition: TopicPartition) -> None:
        """Give up leadership and ISR membership; the replica returns after a restart."""
        self._broker.lose([topic_partition])

    async def connect(self, node_id: int) -> trio.abc.Stream:
        """Open a stream to another broker; raises KafkaConnectionError."""
        return await self._connect(node_id)

    def changed(self, topic_partition: TopicPartition) -> None:
        """Wake the fetches that wait for this partition, so that they check again."""
        self._broker.parking.changed(topic_partition)

    def watch(self, partition: Partition) -> None:
        """Check the ISR of a partition periodically, until it is settled."""
        self._watched[partition] = None

    def truncating(self, log: Log, offset: int) -> None:
        """Checkpoint that nothing from ``offset`` on is flushed; raises KafkaStorageError."""
        log.flusher.expect_cut(offset)
        self._broker.logs.checkpoints.write_recovery_points(self._broker.logs.logs)

    def truncated(self, log: Log) -> None:
        """Write the checkpoints of a truncated log; raises KafkaStorageError."""
        self.changed(log.topic_partition)
        self._broker.logs.checkpoints.log_truncated(log.topic_partition, self._broker.logs.logs)

    def finish_truncation(self, log: Log) -> None:
        """Finish a truncation that the disk has interrupted, if there is one; raises KafkaStorageError."""
        if log.state is LogState.HALF_TRUNCATED:
            log.finish_truncation(now_ms=self._broker.clock.wall_ms())
            self.truncated(log)

    # --- the controller's changes ---------------------------------------------------------------------------

    def apply(self, partitions: Mapping[TopicPartition, PartitionState]) -> None:
        """Lead, follow or drop partitions; what a disk error prevents is logged and tried again later."""
        for topic_partition, state in partitions.items():
            self._refused.pop(topic_partition, None)
            with log_failures(f"node {self.node_id}: applying the controller's state of {topic_partition}"):
                try:
                    self._apply(topic_partition, state)
                except KafkaStorageError:
                    self._refused[topic_partition] = state
                    raise
        if self._refused:
            self._watch()

    def try_refused(self) -> None:
        """Apply again what a disk error prevented: the controller sends nothing before the next change."""
        lost = self._broker.logs.offline  # until a restart
        refused = {each: state for each, state in self._refused.items() if each not in lost}
        known = self._controller.state.topics
        missing = sorted({each.topic for each in refused} - self._broker.logs.topics.keys())
        for topic in [known[name] for name in missing if name in known]:
            with log_failures(f"node {self.node_id}: making {topic.name}"):
                self._broker.topics.apply(ClusterChange(topics={topic.name: topic}))
        self.apply(refused)

    def _apply(self, topic_partition: TopicPartition, state: PartitionState) -> None:
        known = self.partitions.get(topic_partition)
        if known is not None:
            if known.log is not self._broker.logs.logs.get(topic_partition):
                self.stop(topic_partition)  # a topic was deleted and another one of this name created
                known = None
            # An answer to a proposal may overtake the broadcast of an earlier state.
            elif known.state.partition_epoch >= state.partition_epoch:
                return
        if self.node_id not in state.replicas:
            self.stop(topic_partition)
            if topic_partition in self._broker.logs.logs:
                self._broker.logs.remove_replica(topic_partition)
            return
        if topic_partition.topic not in self._broker.logs.topics:
            raise KafkaStorageError("its topic could not be created on this broker")
        log = self._broker.logs.add_replica(topic_partition, now_ms=self._broker.clock.wall_ms())
        self.finish_truncation(log)
        # A single replica needs no high watermark of its own, and its appends cost nothing extra.
        if state.replicas == (state.leader,):
            self.stop(topic_partition)
            log.begin_leader_epoch(state.leader_epoch)
            log.end_replication()
            self._broker.parking.high_watermark_moved(topic_partition)
            return
        if known is None:
            known = self.partitions[topic_partition] = Partition(log, state, self)
            self._watch()
        if state.leader == self.node_id:
            self._unfollow(topic_partition)
            known.lead(state)
        else:
            self._follow(known, state)

    def _follow(self, partition: Partition, state: PartitionState) -> None:
        topic_partition = partition.log.topic_partition
        partition.resign(state)
        self._broker.parking.changed(topic_partition)
        for leader_id, fetcher in self._fetchers.items():
            if leader_id != state.leader:
                fetcher.unfollow(topic_partition)
        if state.leader != NOBODY:
            self._fetcher(state.leader).follow(partition.log, state.leader_epoch)

    def _fetcher(self, leader_id: int) -> LeaderFetcher:
        from splashdam.embedded_broker.replication.replica_fetcher import LeaderFetcher

        if leader_id not in self._fetchers:
            fetcher = self._fetchers[leader_id] = LeaderFetcher(leader_id, self)
            self._start_soon(fetcher.run)
        return self._fetchers[leader_id]

    def _unfollow(self, topic_partition: TopicPartition) -> None:
        for fetcher in self._fetchers.values():
            fetcher.unfollow(topic_partition)

    def stop(self, topic_partition: TopicPartition) -> None:
        """Drop a partition: neither lead nor follow it. Its log is left alone."""
        self._refused.pop(topic_partition, None)
        partition = self.partitions.pop(topic_partition, None)
        if partition is not None:
            self._unfollow(topic_partition)
            partition.resign(partition.state)
            self._broker.parking.changed(topic_partition)

    # --- as leader ------------------------------------------------------------------------------------------

    def on_fetch(self, log: Log, fetch: ReplicaFetch) -> Follower | None:
        """Handle a follower's fetch; return the follower if its next fetch may wait until something happens.

        Raises:
            NotLeaderOrFollowerError: this broker does not lead; or the follower is no replica, or fetches in
                the broker epoch of an earlier start.
            UnknownLeaderEpochError: see `Partition.fetched`.
        """
        from splashdam.embedded_broker.fetching.replica_fetches import not_a_replica

        partition = self.partitions.get(log.topic_partition)
        if partition is None:
            raise not_a_replica(log.topic_partition, fetch)
        known = self._controller.state.brokers.get(fetch.replica_id)
        # A fetch from before the follower's restart: its records may be gone, so it must not join the ISR
        # (KIP-903).
        if known is not None and -1 < fetch.replica_epoch < known.epoch:
            raise NotLeaderOrFollowerError(
                f"node {fetch.replica_id} fetches in broker epoch {fetch.replica_epoch}, not {known.epoch}"
            )
        return partition.fetched(fetch)

    def reader_in(self, rack: str, log: Log, fetch_offset: int) -> int:
        """Return the follower that a consumer in this rack should read from; -1 for this broker."""
        partition = self.partitions.get(log.topic_partition)
        if partition is None or partition.leader is None:
            return -1
        return partition.leader.reader_in(rack, fetch_offset, self._controller.state.rack_of)

    def _watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            self._start_soon(self._keep_isrs)

    def on_fetch_end(self) -> None:
        """Send the proposals that a follower's fetch gave rise to."""
        self.settle_isrs()

    async def _keep_isrs(self) -> None:
        """Check the ISRs every half of ``replica.lag.time.max.ms``, as Kafka, and retry after disk errors."""
        while True:
            await trio.sleep(self.lag_time_max_ms / 2000)
            self.try_refused()
            self.check_isrs()

    def check_isrs(self) -> None:
        """Check the ISRs of all partitions that are not settled.

        Unanswered proposals are repeated first, because a partition has one pending at a time.
        """
        looked_at = list(self._watched)
        present = [each for each in looked_at if self.partitions.get(each.log.topic_partition) is each]
        for partition in present:
            partition.propose_again()
        self.settle_isrs()
        for partition in present:
            with log_failures(f"node {self.node_id}: leading {partition.log.topic_partition}"):
                partition.check_isr()
        self.settle_isrs()
        for partition in looked_at:
            if self.partitions.get(partition.log.topic_partition) is not partition or partition.is_settled:
                del self._watched[partition]
                partition.is_watched = False

    def log_start_moved(self, topic_partition: TopicPartition) -> None:
        """Report the new log start offset of a followed partition with the next fetch."""
        for fetcher in self._fetchers.values():
            fetcher.report(topic_partition)


@attrs.frozen
class Membership:
    """What a broker of a cluster is opened with.

    Attributes:
        controller: of the cluster.
        connect: opens a stream to another broker, by node id.
        line: asked instead of the controller by the broker's replicas; tests break it like a network.
    """

    controller: Controller
    connect: ConnectToBroker
    line: ControlsPartitions | None = None
