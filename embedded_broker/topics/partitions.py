"""First checks of a partition: does this broker lead it, and is the client's leader epoch current.

If another broker leads, answers name it with its address (KIP-951).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from splashdam.embedded_broker.execution.answers import Address
from splashdam.model.broker_errors import (
    FencedLeaderEpochError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from splashdam.model.log_text import quoted
from splashdam.model.values import TopicPartition

if TYPE_CHECKING:
    from splashdam.embedded_broker.controller.leadership import Leadership
    from splashdam.storage.log import Log
    from splashdam.storage.manager.log_manager import LogManager


class KnowsPartitions(Protocol):
    """The parts of a broker that know its partitions; the attributes are those of `Broker`."""

    logs: LogManager
    leadership: Leadership

    @property
    def node_id(self) -> int: ...


def leader_log(broker: KnowsPartitions, topic_partition: TopicPartition) -> Log:
    """Return the log of a partition that this broker leads.

    Raises:
        UnknownTopicOrPartitionError: the cluster has no such partition.
        NotLeaderOrFollowerError: another broker leads it, or none.
        KafkaStorageError: its data directory has failed.
    """
    log = hosted_log(broker, topic_partition)
    if log.replication is not None:
        log.replication.check_leading()
    return log


def hosted_log(broker: KnowsPartitions, topic_partition: TopicPartition) -> Log:
    """Return the log of a partition of this broker, leader or follower: consumers may read from followers.

    Raises:
        UnknownTopicOrPartitionError: the cluster has no such partition.
        NotLeaderOrFollowerError: only other brokers have it.
        KafkaStorageError: its data directory has failed.
    """
    log = broker.logs.logs.get(topic_partition)
    if log is not None:
        return log
    broker.logs.offline.check(topic_partition)
    leader = broker.leadership.leader_of(topic_partition)
    if leader is None:
        raise UnknownTopicOrPartitionError(f"this broker does not host {quoted(str(topic_partition))}")
    raise NotLeaderOrFollowerError(f"{topic_partition} is led by node {leader.node_id} (-1: nobody)")


class LeaderElsewhere(NamedTuple):
    """Another broker that leads a partition."""

    node_id: int
    leader_epoch: int
    address: Address


def leader_elsewhere(
    broker: KnowsPartitions, reached_at: Address, topic_partition: TopicPartition
) -> LeaderElsewhere | None:
    """Return the leader to name beside error 6; None if there is no leader, or it is unknown or this broker.

    Args:
        broker: this one.
        reached_at: the address by which the client reached it.
        topic_partition: of the request.
    """
    leader = broker.leadership.leader_of(topic_partition)
    if leader is None or leader.node_id == broker.node_id:
        return None
    address = broker.leadership.brokers(reached_at).get(leader.node_id)
    return None if address is None else LeaderElsewhere(*leader, address)


def check_leader_epoch(log: Log, epoch: int) -> None:
    """Compare a client's leader epoch (-1: unchecked) with the log's.

    Raises:
        FencedLeaderEpochError: the client's is older.
        UnknownLeaderEpochError: the client's is newer.
    """
    if epoch in (-1, log.leader_epoch):
        return
    kind = FencedLeaderEpochError if epoch < log.leader_epoch else UnknownLeaderEpochError
    raise kind(f"the leader epoch is {log.leader_epoch}, the request says {epoch}")
