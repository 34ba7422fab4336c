"""Partition leaders, leader epochs and broker addresses, for handlers: Kafka's ``MetadataCache``.

`ClusterView` answers from the controller's state. `Leadership` is a protocol because the simulator also has
brokers without a controller, whose partitions have a single replica.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from splashdam.embedded_broker.controller.producer_ids import ProducerIdSource
from splashdam.embedded_broker.controller.state import PartitionState
from splashdam.embedded_broker.execution.answers import Address
from splashdam.model.values import TopicPartition

if TYPE_CHECKING:
    from splashdam.embedded_broker.controller.controller import Controller
    from splashdam.embedded_broker.controller.state import BrokerState
    from splashdam.storage.manager.log_manager import LogManager


class Leader(NamedTuple):
    """The leader of a partition; ``node_id`` is `NOBODY` while it has no leader."""

    node_id: int
    leader_epoch: int


class Leadership(Protocol):
    """The cluster as handlers see it."""

    @property
    def producer_ids(self) -> ProducerIdSource:
        """The source of producer ids, unique in the cluster."""
        ...

    @property
    def controller_id(self) -> int:
        """The node id that answers name as controller."""
        ...

    def brokers(self, reached_at: Address, *, with_fenced: bool = False) -> Mapping[int, Address]:
        """Return the addresses of all brokers, for a client that reached this broker at ``reached_at``."""
        ...

    def leader_of(self, topic_partition: TopicPartition) -> Leader | None:
        """Return the leader of a partition; None if there is no such partition."""
        ...

    def partition(self, topic_partition: TopicPartition) -> PartitionState | None:
        """Return the state of a partition; None if there is no such partition."""
        ...

    def hosts(self, node_id: int, topic_partition: TopicPartition) -> bool:
        """Whether a broker has a replica of this partition."""
        ...


def begin_leader_epochs(leadership: Leadership, logs: LogManager) -> None:
    """Begin the present leader epochs in the logs, after a start.

    An epoch in which nothing was appended is not in the files; each is written with its first record.
    """
    for topic_partition, log in logs.logs.items():
        leader = leadership.leader_of(topic_partition)
        if leader is not None and leader.node_id == logs.identity.node_id:
            log.begin_leader_epoch(leader.leader_epoch)


_EVERYWHERE = ("0.0.0.0", "::")
"""Wildcard addresses: a broker listens on them, but no client can connect to them."""


class ClusterView:
    """A `Leadership` that answers from the controller's state.

    Args:
        controller: of the cluster.
        node_id: the broker whose handlers ask.
    """

    def __init__(self, controller: Controller, node_id: int) -> None:
        self._controller = controller
        self._node_id = node_id

    @property
    def producer_ids(self) -> ProducerIdSource:
        return self._controller.producer_ids

    @property
    def controller_id(self) -> int:
        """The node id that answers name as controller."""
        return self._controller.node_id

    def brokers(self, reached_at: Address, *, with_fenced: bool = False) -> Mapping[int, Address]:
        """Return the addresses of the listener by which the client came.

        The address of this broker is always ``reached_at`` itself.

        Args:
            reached_at: the address at which the client reached this broker.
            with_fenced: include registered brokers that are down.
        """
        state = self._controller.state
        own = state.brokers.get(self._node_id)
        listener = "" if own is None else _listener(own, reached_at)
        found = {
            node_id: address
            for node_id, each in state.brokers.items()
            if (with_fenced or not each.is_fenced)
            and (address := _address(each, listener, reached_at)) is not None
        }
        return dict(sorted({**found, self._node_id: reached_at}.items()))

    def leader_of(self, topic_partition: TopicPartition) -> Leader | None:
        found = self._controller.state.partitions.get(topic_partition)
        return None if found is None else Leader(found.leader, found.leader_epoch)

    def partition(self, topic_partition: TopicPartition) -> PartitionState | None:
        return self._controller.state.partitions.get(topic_partition)

    def hosts(self, node_id: int, topic_partition: TopicPartition) -> bool:
        found = self._controller.state.partitions.get(topic_partition)
        return found is not None and node_id in found.replicas


def _listener(own: BrokerState, reached_at: Address) -> str:
    """Return the name of the listener by which the client came: by address, else by port, else the first."""
    same = [name for name, each in own.listeners.items() if each == reached_at]
    same_port = [name for name, each in own.listeners.items() if each.port == reached_at.port]
    return next(iter((*same, *same_port, *own.listeners)), "")


def _address(broker: BrokerState, listener: str, reached_at: Address) -> Address | None:
    address = broker.listeners.get(listener)
    if address is not None and address.host in _EVERYWHERE:  # the brokers of a cluster share one machine
        return Address(reached_at.host, address.port)
    return address
