"""Who leads which partition, in which leader epoch, and where the brokers of the cluster are reached.

The controller says so (`ClusterView`). Brokers that keep one copy of each partition and hand it over, as
those of the simulator do, share a `LeadershipMap` instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

import attrs

from splashdam.embedded_broker.answering.answers import Address
from splashdam.embedded_broker.controller.producer_ids import HandsOutIds
from splashdam.embedded_broker.controller.state import NOBODY, PartitionState
from splashdam.model.values import TopicPartition

if TYPE_CHECKING:
    from splashdam.storage.manager.log_manager import LogManager


class Leader(NamedTuple):
    """The leader of a partition; ``node_id`` is `NOBODY` while there is none."""

    node_id: int
    leader_epoch: int


class Leadership(Protocol):
    """What handlers ask about the cluster."""

    @property
    def producer_ids(self) -> HandsOutIds:
        """Where ids come from that are unique in the cluster."""
        ...

    @property
    def controller_id(self) -> int:
        """The broker that answers name as controller."""
        ...

    def brokers(self, reached_at: Address, *, with_fenced: bool = False) -> Mapping[int, Address]:
        """Every broker by node id, as a client is told that reached the one asked at ``reached_at``."""
        ...

    def leader_of(self, topic_partition: TopicPartition) -> Leader | None:
        """Who leads the partition; None where there is no such partition."""
        ...

    def partition(self, topic_partition: TopicPartition) -> PartitionState | None:
        """Who keeps and leads the partition; None where there is no such partition."""
        ...

    def hosts(self, node_id: int, topic_partition: TopicPartition) -> bool:
        """Whether a broker keeps this partition of a topic it knows."""
        ...


def begin_leader_epochs(leadership: Leadership, logs: LogManager) -> None:
    """After a start: an epoch in which nothing was appended is not in the files.

    Raises:
        KafkaStorageError: it could not be written.
    """
    for topic_partition, log in logs.logs.items():
        leader = leadership.leader_of(topic_partition)
        if leader is not None and leader.node_id == logs.identity.node_id:
            log.begin_leader_epoch(leader.leader_epoch)


@attrs.define
class LeadershipMap:
    """The leaders of a cluster whose brokers live in one process.

    Attributes:
        producer_ids: shared by all brokers.
        addresses: of every broker, by node id.
        leaders: of every partition.
    """

    producer_ids: HandsOutIds
    addresses: dict[int, Address] = attrs.field(factory=dict)
    leaders: dict[TopicPartition, Leader] = attrs.field(factory=dict)

    def brokers(self, reached_at: Address, *, with_fenced: bool = False) -> Mapping[int, Address]:
        """Every broker at its own address; none is fenced."""
        return self.addresses

    def leader_of(self, topic_partition: TopicPartition) -> Leader | None:
        """Who leads the partition."""
        return self.leaders.get(topic_partition)

    @property
    def controller_id(self) -> int:
        """The first broker."""
        return min(self.addresses, default=NOBODY)

    def partition(self, topic_partition: TopicPartition) -> PartitionState | None:
        """Its leader keeps it, and nobody else."""
        leader = self.leaders.get(topic_partition)
        if leader is None:
            return None
        nodes = () if leader.node_id == NOBODY else (leader.node_id,)
        return PartitionState(nodes, nodes, *leader)

    def hosts(self, node_id: int, topic_partition: TopicPartition) -> bool:
        """The leader hosts it, and nobody else."""
        leader = self.leaders.get(topic_partition)
        return leader is not None and leader.node_id == node_id

    def appoint(self, topic_partition: TopicPartition, node_id: int) -> Leader:
        """Another leader, or `NOBODY`, in the next leader epoch; the first epoch is 0."""
        before = self.leaders.get(topic_partition)
        leader = Leader(node_id, 0 if before is None else before.leader_epoch + 1)
        self.leaders[topic_partition] = leader
        return leader
