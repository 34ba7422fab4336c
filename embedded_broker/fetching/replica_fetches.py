"""What fetches of followers mean to the leader; the fetch handler tells it, replication decides.

A follower's fetch carries the end of its log, which is its acknowledgement of everything below (facts,
section 8).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from splashdam.embedded_broker.controller.state import PartitionState
from splashdam.model.broker_errors import (
    BrokerResponseError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
)
from splashdam.model.values import TopicPartition
from splashdam.storage.log import Log


class ReplicaFetch(NamedTuple):
    """One partition of a follower's fetch that the leader has read, and in which nothing diverges.

    Attributes:
        replica_id: node id of the follower.
        replica_epoch: its broker epoch, -1 where it says none (Fetch below version 15).
        fetch_offset: the end of its log.
        log_start_offset: where its log starts, -1 where it says nothing.
        leader_epoch: the leader epoch it knows, -1 where it says none.
        leader_end_offset: the end of the leader's log when it was read.
    """

    replica_id: int
    replica_epoch: int
    fetch_offset: int
    log_start_offset: int
    leader_epoch: int
    leader_end_offset: int


def not_a_replica(topic_partition: TopicPartition, fetch: ReplicaFetch) -> BrokerResponseError:
    """What a node is answered that is no follower; if it names a leader epoch, this broker may be behind."""
    kind = NotLeaderOrFollowerError if fetch.leader_epoch < 0 else UnknownLeaderEpochError
    return kind(f"node {fetch.replica_id} is no replica of {topic_partition}")


class IdleFollower(Protocol):
    """A follower of a partition, in sync and with everything in it, as its leader sees it.

    Its fetches say nothing new while nothing happens to the partition: the leader need not be told of each.
    """

    def was_caught_up(self, until_ms: float) -> None:
        """It has fetched until then, and had everything; something has happened to the partition now."""
        ...


class TakesReplicaFetches(Protocol):
    """What the fetch handler asks of replication."""

    def on_fetch(self, log: Log, fetch: ReplicaFetch) -> IdleFollower | None:
        """Takes note of how far a follower is; called once for each request and partition that does not rest.

        Returns:
            The follower, if it has everything and is in sync: before something happens to the partition, its
            fetches are not told, and then until when there were any. None: its next fetch is told, too,
            whether something has happened or not.

        Raises:
            BrokerResponseError: what the partition is answered with, such as that the node is no replica.
        """
        ...

    def on_fetch_end(self) -> None:
        """No more partitions of the follower's request are told of, however it ended."""
        ...

    def reader_in(self, rack: str, log: Log, fetch_offset: int) -> int:
        """The follower that a consumer in this rack is to read from; -1: this broker."""
        ...

    def apply(self, partitions: Mapping[TopicPartition, PartitionState]) -> None:
        """Leads and follows as the controller says of these partitions, this broker's replicas or not."""
        ...

    def stop(self, topic_partition: TopicPartition) -> None:
        """Has no part in a partition any more, whose topic was deleted."""
        ...

    def log_start_moved(self, topic_partition: TopicPartition) -> None:
        """A log begins later than before."""
        ...


class NoReplicas:
    """A broker that is alone has no followers; whoever says it is one is answered as Kafka does."""

    def on_fetch(self, log: Log, fetch: ReplicaFetch) -> IdleFollower | None:
        """Refuses.

        Raises:
            UnknownLeaderEpochError: the fetch names a leader epoch: perhaps this broker is behind.
            NotLeaderOrFollowerError: it names none.
        """
        raise not_a_replica(log.topic_partition, fetch)

    def on_fetch_end(self) -> None:
        """Nothing was told."""

    def reader_in(self, rack: str, log: Log, fetch_offset: int) -> int:
        """This broker: there is no other."""
        return -1

    def apply(self, partitions: Mapping[TopicPartition, PartitionState]) -> None:
        """Nothing follows from it."""

    def stop(self, topic_partition: TopicPartition) -> None:
        """There is nothing to stop."""

    def log_start_moved(self, topic_partition: TopicPartition) -> None:
        """Nobody else is to hear of it."""
