"""What the handlers of one broker ask about the cluster, from its controller's state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from splashdam.embedded_broker.answering.answers import Address
from splashdam.embedded_broker.controller.leadership import Leader
from splashdam.embedded_broker.controller.producer_ids import HandsOutIds
from splashdam.model.values import TopicPartition

if TYPE_CHECKING:
    from splashdam.embedded_broker.controller.controller import Controller
    from splashdam.embedded_broker.controller.state import BrokerState, PartitionState

_EVERYWHERE = ("0.0.0.0", "::")
"""Hosts that say where a broker listens, and not how it is reached."""


class ClusterView:
    """A `Leadership` that asks the controller.

    Args:
        controller: of the cluster.
        node_id: whose view it is.
    """

    def __init__(self, controller: Controller, node_id: int) -> None:
        self._controller = controller
        self._node_id = node_id

    @property
    def producer_ids(self) -> HandsOutIds:
        """The controller's."""
        return self._controller.producer_ids

    @property
    def controller_id(self) -> int:
        """The broker that answers name as controller."""
        return self._controller.node_id

    def brokers(self, reached_at: Address, *, with_fenced: bool = False) -> Mapping[int, Address]:
        """Every broker that is alive, or each that has registered, by the client's listener; the one asked is
        where the client reached it."""
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
        """Who leads the partition."""
        found = self._controller.state.partitions.get(topic_partition)
        return None if found is None else Leader(found.leader, found.leader_epoch)

    def partition(self, topic_partition: TopicPartition) -> PartitionState | None:
        """Who keeps and leads the partition."""
        return self._controller.state.partitions.get(topic_partition)

    def hosts(self, node_id: int, topic_partition: TopicPartition) -> bool:
        """Whether it is one of the replicas."""
        found = self._controller.state.partitions.get(topic_partition)
        return found is not None and node_id in found.replicas


def _listener(own: BrokerState, reached_at: Address) -> str:
    """By which listener the client came: the one of this address, or of this port, or the first one."""
    same = [name for name, each in own.listeners.items() if each == reached_at]
    same_port = [name for name, each in own.listeners.items() if each.port == reached_at.port]
    return next(iter((*same, *same_port, *own.listeners)), "")


def _address(broker: BrokerState, listener: str, reached_at: Address) -> Address | None:
    address = broker.listeners.get(listener)
    if address is not None and address.host in _EVERYWHERE:  # the brokers of a cluster share one machine
        return Address(reached_at.host, address.port)
    return address
