"""What a handler asks first of a partition: is it here, and is the client's leader epoch current."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splashdam.model.broker_errors import (
    FencedLeaderEpochError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from splashdam.model.values import TopicPartition

if TYPE_CHECKING:
    from splashdam.embedded_broker.broker import Broker
    from splashdam.embedded_broker.storage.log import Log


def leader_log(broker: Broker, topic_partition: TopicPartition) -> Log:
    """The log of a partition that this broker leads.

    Raises:
        UnknownTopicOrPartitionError: there is none.
    """
    log = broker.logs.logs.get(topic_partition)
    if log is None:
        raise UnknownTopicOrPartitionError(f"this broker does not host {topic_partition}")
    return log


def check_leader_epoch(log: Log, epoch: int) -> None:
    """Compares the leader epoch a client sent (-1: unchecked) with the log's.

    Raises:
        FencedLeaderEpochError: the client's is older.
        UnknownLeaderEpochError: the client's is newer.
    """
    if epoch in (-1, log.leader_epoch):
        return
    kind = FencedLeaderEpochError if epoch < log.leader_epoch else UnknownLeaderEpochError
    raise kind(f"the leader epoch is {log.leader_epoch}, the request says {epoch}")
