"""What a controller knows: brokers, topics, and for each partition who keeps it and who leads; no I/O.

A ``ClusterState`` changes by ``ClusterChange`` alone: that is what decisions are made of, what is written to
disk, and what brokers are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import attrs

from splashdam.embedded_broker.answering.answers import Address
from splashdam.model.broker_errors import BrokerResponseError
from splashdam.model.values import TopicPartition
from splashdam.storage.manager.topic_registry import Topic
from splashdam.storage.topic_names import folded

NOBODY = -1
"""The node id of a leader that is not there."""


class PartitionState(NamedTuple):
    """Who keeps a partition, and who leads it.

    Attributes:
        replicas: node ids, the preferred leader first.
        isr: those in sync; never empty, and all of them replicas.
        leader: node id, `NOBODY` while no member of ``isr`` is alive.
        leader_epoch: rises with every change of leader, and when a replica goes.
        partition_epoch: rises with every change.
        adding_replicas: those of ``replicas`` that a reassignment adds.
        removing_replicas: those that go when it is complete.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding_replicas or self.removing_replicas)


class IsrProposal(NamedTuple):
    """What a leader says of one of its partitions, for the controller to agree to.

    Attributes:
        isr: node ids of the replicas that are in sync now.
        leader_epoch: in which it leads.
        partition_epoch: of the state that it goes by.
    """

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


IsrAnswer: TypeAlias = PartitionState | BrokerResponseError
"""What a controller says to a proposal: the partition's state from now on, or why it stays as it was."""


@attrs.frozen
class BrokerState:
    """A broker that has registered.

    Attributes:
        node_id: its id.
        epoch: of its registration; rises with every start of any broker.
        listeners: where clients are told to come, by listener; empty where it has no TCP port.
        is_fenced: it is down, or has not been heard of: it leads nothing, and is in no ISR but as the last.
        is_shutting_down: it is about to end in order, and gets no new leaderships.
        rack: where it stands (``broker.rack``), None where nobody says.
    """

    node_id: int
    epoch: int
    listeners: Mapping[str, Address] = attrs.field(factory=dict)
    is_fenced: bool = False
    is_shutting_down: bool = False
    rack: str | None = None

    @property
    def is_eligible(self) -> bool:
        """Whether it may lead, and may join an ISR."""
        return not self.is_fenced and not self.is_shutting_down


class Resource(NamedTuple):
    """What options are kept for that all brokers share: ``kind`` is up to who keeps them."""

    kind: str
    name: str


@attrs.frozen(kw_only=True)
class ClusterChange:
    """Something that happened, all at once.

    Attributes:
        topics: made, with options or partitions changed; by name.
        deleted: topics that are gone.
        partitions: new states.
        brokers: registered, fenced, unfenced; by node id.
        resources: options that replace those kept (of brokers, users, quotas…); none at all: gone.
    """

    topics: Mapping[str, Topic] = attrs.field(factory=dict)
    deleted: tuple[Topic, ...] = ()
    partitions: Mapping[TopicPartition, PartitionState] = attrs.field(factory=dict)
    brokers: Mapping[int, BrokerState] = attrs.field(factory=dict)
    resources: Mapping[Resource, Mapping[str, str]] = attrs.field(factory=dict)

    def __bool__(self) -> bool:
        return bool(self.topics or self.deleted or self.partitions or self.brokers or self.resources)


class ClusterState:
    """Everything a controller knows.

    Attributes:
        topics: by name.
        partitions: of all topics.
        brokers: that have ever registered, by node id.
        resources: options that all brokers share besides.
        names_by_fold: names of topics by what metrics make of them (``folded``).
    """

    def __init__(self, brokers: Mapping[int, BrokerState] | None = None) -> None:
        self.topics: dict[str, Topic] = {}
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.brokers: dict[int, BrokerState] = dict(brokers or {})
        self.resources: dict[Resource, Mapping[str, str]] = {}
        self.names_by_fold: dict[str, str] = {}

    def apply(self, change: ClusterChange) -> None:
        """What happened has happened."""
        for topic in change.deleted:
            del self.topics[topic.name]
            self.names_by_fold.pop(folded(topic.name), None)
            for number in topic.partitions:
                self.partitions.pop(TopicPartition(topic.name, number), None)
        self.topics.update(change.topics)
        self.names_by_fold.update((folded(name), name) for name in change.topics)
        self.partitions.update(change.partitions)
        self.brokers.update(change.brokers)
        for resource, options in change.resources.items():
            if options:
                self.resources[resource] = options
            else:
                self.resources.pop(resource, None)

    def as_change(self) -> ClusterChange:
        """All of it, for somebody who knows nothing yet."""
        return ClusterChange(
            topics=dict(self.topics),
            partitions=dict(self.partitions),
            brokers=dict(self.brokers),
            resources=dict(self.resources),
        )

    def rack_of(self, node_id: int) -> str | None:
        """Where a broker stands; None where nobody says."""
        broker = self.brokers.get(node_id)
        return None if broker is None else broker.rack

    def is_eligible(self, node_id: int) -> bool:
        """Whether a broker may lead, and may join an ISR."""
        broker = self.brokers.get(node_id)
        return broker is not None and broker.is_eligible

    def eligible(self) -> list[int]:
        """The brokers that may, by node id."""
        return [node_id for node_id in sorted(self.brokers) if self.brokers[node_id].is_eligible]

    def partitions_of(self, topics: Iterable[str]) -> list[TopicPartition]:
        """The partitions of some topics, those of unknown ones left out."""
        return [
            TopicPartition(name, number)
            for name in topics
            if name in self.topics
            for number in self.topics[name].partitions
        ]
