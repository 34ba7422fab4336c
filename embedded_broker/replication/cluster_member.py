"""Registers a broker with the controller, and applies its changes: logs first, coordinators last."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from splashdam.embedded_broker.controller.state import ClusterChange, PartitionState
from splashdam.model.broker_errors import BrokerResponseError
from splashdam.model.values import TopicPartition

if TYPE_CHECKING:
    from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
    from splashdam.embedded_broker.controller.controller import Controller
    from splashdam.embedded_broker.dynamic_configs.stored import DynamicConfigs
    from splashdam.embedded_broker.execution.answers import Address
    from splashdam.embedded_broker.fetching.replica_fetches import TakesReplicaFetches
    from splashdam.embedded_broker.topics.topics import Topics

_log = logging.getLogger(__name__)


class Coordinates(Protocol):
    """A coordinator with its state in the partitions of an internal topic that this broker leads."""

    def load(self, partition: int) -> None:
        """Load the state of a partition: this broker leads it from now on."""
        ...

    def resign(self, partition: int) -> None:
        """Drop the partition: another broker leads it."""
        ...


class KeepsOffsets(Protocol):
    """The offsets that groups have committed."""

    def forget_topic(self, name: str) -> None:
        """Remove all offsets of a topic that was deleted."""
        ...


class JoinsCluster(Protocol):
    """The parts of a broker that changes of the cluster concern; the attributes are those of `Broker`."""

    settings: BrokerSettings
    controller: Controller
    configs: DynamicConfigs
    topics: Topics
    replicas: TakesReplicaFetches

    @property
    def node_id(self) -> int: ...

    @property
    def offsets(self) -> KeepsOffsets: ...

    @property
    def listeners(self) -> Mapping[str, list[Address]]: ...


class ClusterMember:
    """A broker as its controller knows it.

    Args:
        broker: this one.
        coordinators: by their internal topics.

    Attributes:
        epoch: broker epoch since this start; -1 before ``join``.
    """

    def __init__(self, broker: JoinsCluster, coordinators: Mapping[str, Coordinates]) -> None:
        self.epoch = -1
        self._broker = broker
        self._controller = broker.controller
        self._coordinators = coordinators
        self._coordinated: set[TopicPartition] = set()

    @property
    def node_id(self) -> int:
        return self._broker.node_id

    def join(self) -> None:
        """Register; when this returns, the broker has all topics, and leads what it has to lead.

        Raises:
            KafkaStorageError: the disk failed.
        """
        self._broker.topics.delete_unknown(self._controller.state.topics)
        listeners = {name: addresses[0] for name, addresses in self._broker.listeners.items()}
        self.epoch = self._controller.register(self, listeners, self._broker.settings.broker_rack or None)

    def leave(self, *, orderly: bool) -> None:
        """Leave the cluster; if ``orderly``, other brokers take over its partitions first."""
        if self.epoch < 0 or self._controller.is_alone:
            return
        if orderly and not self._controller.has_ended:
            with self._logged("moving leads"):
                self._controller.begin_shutdown(self.node_id, self.epoch)
        with self._logged("leaving the cluster"):
            self._controller.leave(self.node_id, self.epoch)

    def apply(self, change: ClusterChange) -> None:
        """Apply a change.

        Raises:
            KafkaStorageError: the disk failed, and the broker is alone; the change has not happened.
        """
        # A broker that is alone undoes what its disk refuses. In a cluster the change stands, and the other
        # brokers have applied it.
        with self._logged("changing options", is_raised=self._controller.is_alone):
            self._broker.configs.apply(change.resources)
        with self._logged("changing topics", is_raised=self._controller.is_alone):
            self._broker.topics.apply(change)
        if change.deleted:
            self._forget(change)
        if change.partitions:
            self._broker.replicas.apply(change.partitions)
            self._move_coordinators(change.partitions)

    def _forget(self, change: ClusterChange) -> None:
        for topic in change.deleted:
            for number in topic.partitions:
                self._broker.replicas.stop(TopicPartition(topic.name, number))
            for each in [each for each in self._coordinated if each.topic == topic.name]:
                self._resign(each)
            with self._logged(f"forgetting offsets of {topic.name}", is_raised=self._controller.is_alone):
                self._broker.offsets.forget_topic(topic.name)

    def _move_coordinators(self, partitions: Mapping[TopicPartition, PartitionState]) -> None:
        for topic_partition, state in partitions.items():
            if topic_partition.topic not in self._coordinators:
                continue
            if state.leader != self.node_id:
                self._resign(topic_partition)
            elif topic_partition not in self._coordinated:
                self._coordinated.add(topic_partition)
                self._coordinators[topic_partition.topic].load(topic_partition.partition)

    def _resign(self, topic_partition: TopicPartition) -> None:
        if topic_partition in self._coordinated:
            self._coordinated.discard(topic_partition)
            self._coordinators[topic_partition.topic].resign(topic_partition.partition)

    @contextmanager
    def _logged(self, what: str, *, is_raised: bool = False) -> Iterator[None]:
        try:
            yield
        except BrokerResponseError as error:
            if is_raised:
                raise
            _log.error("node %d, %s: %s", self.node_id, what, error.message)
