"""Who leads which partition, in which leader epoch, and where the brokers of the cluster are reached.

A broker that is alone leads whatever it hosts (`OwnLeadership`). Brokers of one process that form a cluster
share one `LeadershipMap`, which takes the place of Kafka's controller: it alone says who leads, whoever asks.
Replication is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import attrs

from splashdam.embedded_broker.producer_ids import HandsOutIds
from splashdam.embedded_broker.registry import Address
from splashdam.embedded_broker.storage.log_manager import LogManager
from splashdam.model.values import TopicPartition


class Leader(NamedTuple):
    """The leader of a partition; ``node_id`` is `NOBODY` while there is none."""

    node_id: int
    leader_epoch: int


class Leadership(Protocol):
    """What handlers ask about the cluster."""

    @property
    def producer_ids(self) -> HandsOutIds | None:
        """Where ids come from that are unique in the cluster; None: from the broker's own directory."""
        ...

    def brokers(self, reached_at: Address) -> Mapping[int, Address]:
        """Every broker by node id, as a client is told that reached the one asked at ``reached_at``."""
        ...

    def leader_of(self, topic_partition: TopicPartition) -> Leader | None:
        """Who leads the partition; None where there is no such partition."""
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


class OwnLeadership:
    """A broker that is alone leads every partition it hosts, in the newest epoch of its log."""

    producer_ids: HandsOutIds | None = None

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs

    def brokers(self, reached_at: Address) -> Mapping[int, Address]:
        """The one broker; the address is the one the client came by."""
        return {self._logs.identity.node_id: reached_at}

    def leader_of(self, topic_partition: TopicPartition) -> Leader | None:
        """This broker."""
        log = self._logs.logs.get(topic_partition)
        return None if log is None else Leader(self._logs.identity.node_id, log.leader_epoch)

    def hosts(self, node_id: int, topic_partition: TopicPartition) -> bool:
        """Yes."""
        return True


@attrs.define
class LeadershipMap:
    """The leaders of a cluster whose brokers live in one process.

    Attributes:
        producer_ids: shared by all brokers.
        addresses: of every broker, by node id.
        leaders: of every partition.
    """

    producer_ids: HandsOutIds | None
    addresses: dict[int, Address] = attrs.field(factory=dict)
    leaders: dict[TopicPartition, Leader] = attrs.field(factory=dict)

    def brokers(self, reached_at: Address) -> Mapping[int, Address]:
        """Every broker at its own address."""
        return self.addresses

    def leader_of(self, topic_partition: TopicPartition) -> Leader | None:
        """Who leads the partition."""
        return self.leaders.get(topic_partition)

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
