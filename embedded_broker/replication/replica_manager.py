"""The replicas of one broker: which it leads and which it follows, as the controller says.

A partition with a single replica has no part in this: its log is alone, and costs what it cost before. The
others have a `Partition` each, and for every other broker that leads one of them there is a `LeaderFetcher`.
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
    def state(self) -> ClusterState:
        """What is the case."""
        ...

    def alter_partitions(
        self, node_id: int, broker_epoch: int, proposals: Mapping[TopicPartition, IsrProposal]
    ) -> Mapping[TopicPartition, IsrAnswer]:
        """A leader says who is in sync; raises BrokerResponseError where that holds for all of them."""
        ...


class HasReplicas(Protocol):
    """What the replicas need of their broker; the attributes are those of `Broker`."""

    settings: BrokerSettings
    clock: Clock
    logs: LogManager
    topics: Topics
    parking: FetchParking

    @property
    def node_id(self) -> int:
        """The broker's."""
        ...

    def lose(self, partitions: list[TopicPartition]) -> None:
        """The disk below some logs has failed: others are to lead what they hold."""
        ...


class ReplicaManager:
    """The replicas of one broker.

    Args:
        broker: the broker.
        controller: of its cluster.
        connect: how other brokers are reached.
        start_soon: begins a task of the broker's own.
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
        """The broker's id."""
        return self._broker.node_id

    @property
    def broker_epoch(self) -> int:
        """What the controller gave the broker at its start; -1 before it has registered."""
        known = self._controller.state.brokers.get(self.node_id)
        return -1 if known is None else known.epoch

    @property
    def settings(self) -> BrokerSettings:
        """The broker's at present."""
        return self._broker.settings

    @property
    def clock(self) -> Clock:
        """The broker's."""
        return self._broker.clock

    @property
    def lag_time_max_ms(self) -> float:
        """``replica.lag.time.max.ms``."""
        return self._broker.settings.replication.replica_lag_time_max_ms

    def now_ms(self) -> float:
        """The time."""
        return self._broker.clock.now_ms()

    def is_eligible(self, node_id: int) -> bool:
        """Whether a broker may join an ISR."""
        return self._controller.state.is_eligible(node_id)

    def propose(self, partition: Partition) -> None:
        """Has ``settle_isrs`` ask the controller for another ISR of the partition, with those of others."""
        self._proposing[partition] = None

    def settle_isrs(self) -> None:
        """Asks the controller for all ISRs that were proposed since, in one question.

        It makes them durable with one sync, however many they are: after a restart all followers of a broker
        come up within a few fetches.
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
        """Readers may go on."""
        self._broker.parking.high_watermark_moved(topic_partition)

    def log_failed(self, topic_partition: TopicPartition) -> None:
        """Others are to lead, and to be in sync without this broker; it is one of them after a restart."""
        self._broker.lose([topic_partition])

    async def connect(self, node_id: int) -> trio.abc.Stream:
        """A stream to another broker; raises KafkaConnectionError."""
        return await self._connect(node_id)

    def changed(self, topic_partition: TopicPartition) -> None:
        """Fetches look at it again."""
        self._broker.parking.changed(topic_partition)

    def watch(self, partition: Partition) -> None:
        """Looks at the ISR of a partition until it is settled."""
        self._watched[partition] = None

    def truncated(self, log: Log) -> None:
        """Keeps what a shorter log promises; raises KafkaStorageError."""
        self.changed(log.topic_partition)
        self._broker.logs.checkpoints.log_truncated(log.topic_partition, self._broker.logs.logs)

    # --- what the controller says ---------------------------------------------------------------------------

    def apply(self, partitions: Mapping[TopicPartition, PartitionState]) -> None:
        """Leads, follows or lets go of partitions; what the disk refuses is logged, and tried again."""
        for topic_partition, state in partitions.items():
            self._refused.pop(topic_partition, None)
            with log_failures(f"node {self.node_id}: what the controller says of {topic_partition}"):
                try:
                    self._apply(topic_partition, state)
                except KafkaStorageError:
                    self._refused[topic_partition] = state
                    raise
        if self._refused:
            self._watch()

    def try_refused(self) -> None:
        """What the disk has refused, again: nobody else would ask for it before the partition changes."""
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
                self.stop(topic_partition)  # another topic of this name
                known = None
            elif known.state.partition_epoch >= state.partition_epoch:
                return
        if self.node_id not in state.replicas:
            self.stop(topic_partition)
            if topic_partition in self._broker.logs.logs:
                self._broker.logs.remove_replica(topic_partition)
            return
        if topic_partition.topic not in self._broker.logs.topics:
            raise KafkaStorageError("its topic could not be made here")
        log = self._broker.logs.add_replica(topic_partition, now_ms=self._broker.clock.wall_ms())
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
        """Has no part in a partition any more; its log is somebody else's business."""
        self._refused.pop(topic_partition, None)
        partition = self.partitions.pop(topic_partition, None)
        if partition is not None:
            self._unfollow(topic_partition)
            partition.resign(partition.state)
            self._broker.parking.changed(topic_partition)

    # --- as leader ------------------------------------------------------------------------------------------

    def on_fetch(self, log: Log, fetch: ReplicaFetch) -> Follower | None:
        """A follower has everything below its fetch offset; returns it if it may rest there.

        Raises:
            NotLeaderOrFollowerError: this broker does not lead; the follower is no replica, or is one that
                has been started again since.
            UnknownLeaderEpochError: see `Partition.fetched`.
        """
        from splashdam.embedded_broker.fetching.replica_fetches import not_a_replica

        partition = self.partitions.get(log.topic_partition)
        if partition is None:
            raise not_a_replica(log.topic_partition, fetch)
        known = self._controller.state.brokers.get(fetch.replica_id)
        if known is not None and -1 < fetch.replica_epoch < known.epoch:
            raise NotLeaderOrFollowerError(
                f"node {fetch.replica_id} fetches in broker epoch {fetch.replica_epoch}, now is {known.epoch}"
            )
        return partition.fetched(fetch)

    def reader_in(self, rack: str, log: Log, fetch_offset: int) -> int:
        """The follower that a consumer in this rack is to read from; -1: this broker."""
        partition = self.partitions.get(log.topic_partition)
        if partition is None or partition.leader is None:
            return -1
        return partition.leader.reader_in(rack, fetch_offset, self._controller.state.rack_of)

    def _watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            self._start_soon(self._keep_isrs)

    def on_fetch_end(self) -> None:
        """A fetch is over: the follower joins the ISRs of all partitions in which it has come up."""
        self.settle_isrs()

    async def _keep_isrs(self) -> None:
        """Looks for followers that have fallen behind, every half of the time that they may.

        What the disk has refused is tried again as often.
        """
        while True:
            await trio.sleep(self.lag_time_max_ms / 2000)
            self.try_refused()
            self.look_at_isrs()

    def look_at_isrs(self) -> None:
        """One look at the partitions that something has happened to and that are not settled since.

        What nobody has answered is asked again first, or it would stand in the way of what is proposed now.
        """
        looked_at = list(self._watched)
        present = [each for each in looked_at if self.partitions.get(each.log.topic_partition) is each]
        for partition in present:
            partition.propose_again()
        self.settle_isrs()
        for partition in present:
            with log_failures(f"node {self.node_id}: leading {partition.log.topic_partition}"):
                partition.look_at_isr()
        self.settle_isrs()
        for partition in looked_at:
            if self.partitions.get(partition.log.topic_partition) is not partition or partition.is_settled:
                del self._watched[partition]
                partition.is_watched = False

    def log_start_moved(self, topic_partition: TopicPartition) -> None:
        """A log begins later: its leader, or its followers, are to hear of that."""
        for fetcher in self._fetchers.values():
            fetcher.tell(topic_partition)


@attrs.frozen
class Membership:
    """A broker's place in a cluster.

    Attributes:
        controller: of the cluster.
        connect: opens a stream to another broker, by node id.
        line: what the broker's replicas ask in the controller's stead, as over a line that can break.
    """

    controller: Controller
    connect: ConnectToBroker
    line: ControlsPartitions | None = None
