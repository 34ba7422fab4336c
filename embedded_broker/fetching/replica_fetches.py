"""Fetches of followers, as the fetch handler reports them to replication.

A follower's fetch offset is the end of its log: it acknowledges all records below.
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
    """One partition of a follower's fetch that was read, and does not diverge.

    Attributes:
        replica_id: node id of the follower.
        replica_epoch: broker epoch of the follower, -1 if unknown (Fetch below version 15).
        fetch_offset: end of the follower's log.
        log_start_offset: of the follower's log, -1 if unknown.
        leader_epoch: that the follower knows, -1 if unknown.
        leader_end_offset: end of the leader's log at the time of the read.
    """

    replica_id: int
    replica_epoch: int
    fetch_offset: int
    log_start_offset: int
    leader_epoch: int
    leader_end_offset: int


def not_a_replica(topic_partition: TopicPartition, fetch: ReplicaFetch) -> BrokerResponseError:
    """Return the error for a node that is no follower; with a leader epoch, this broker may be behind."""
    kind = NotLeaderOrFollowerError if fetch.leader_epoch < 0 else UnknownLeaderEpochError
    return kind(f"node {fetch.replica_id} is no replica of {topic_partition}")


class IdleFollower(Protocol):
    """A follower in the ISR that has all records of a partition.

    While nothing happens to the partition its fetches tell nothing new, and are not reported one by one.
    """

    def was_caught_up(self, until_ms: float) -> None:
        """Report that it was caught up until then; something has happened to the partition now."""
        ...


class TakesReplicaFetches(Protocol):
    """The part of replication that fetches and changes of the cluster need."""

    def on_fetch(self, log: Log, fetch: ReplicaFetch) -> IdleFollower | None:
        """Update the state of a follower; called once for each request and partition that does not rest.

        Returns:
            The follower, if it is in the ISR and caught up: its fetches need not be reported before something
            happens to the partition. None: its next fetch has to be reported in any case.

        Raises:
            BrokerResponseError: the answer for the partition, such as that the node is no replica.
        """
        ...

    def on_fetch_end(self) -> None:
        """All partitions of the follower's request have been reported, or the request has failed."""
        ...

    def reader_in(self, rack: str, log: Log, fetch_offset: int) -> int:
        """Return the preferred read replica of a consumer in this rack; -1: this broker."""
        ...

    def apply(self, partitions: Mapping[TopicPartition, PartitionState]) -> None:
        """Lead and follow these partitions as the controller has decided; some may have no replica here."""
        ...

    def stop(self, topic_partition: TopicPartition) -> None:
        """Stop leading or following a partition."""
        ...

    def log_start_moved(self, topic_partition: TopicPartition) -> None:
        """The log start offset of a partition has moved."""
        ...


class NoReplicas:
    """Replication of a broker that is alone: it refuses fetches of followers, as Kafka does."""

    def on_fetch(self, log: Log, fetch: ReplicaFetch) -> IdleFollower | None:
        """Refuse the fetch.

        Raises:
            UnknownLeaderEpochError: the fetch names a leader epoch: this broker may be behind.
            NotLeaderOrFollowerError: it names none.
        """
        raise not_a_replica(log.topic_partition, fetch)

    def on_fetch_end(self) -> None:
        """Do nothing."""

    def reader_in(self, rack: str, log: Log, fetch_offset: int) -> int:
        """Return -1: there is no other replica."""
        return -1

    def apply(self, partitions: Mapping[TopicPartition, PartitionState]) -> None:
        """Do nothing."""

    def stop(self, topic_partition: TopicPartition) -> None:
        """Do nothing."""

    def log_start_moved(self, topic_partition: TopicPartition) -> None:
        """Do nothing."""
