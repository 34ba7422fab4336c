"""The metadata of a cluster: brokers, topics, and each partition's replicas, ISR and leader. No I/O.

A `ClusterState` changes only by a `ClusterChange`: decisions return one, the journal stores it, and brokers
apply it, as KRaft does with metadata records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import attrs

from splashdam.embedded_broker.execution.answers import Address
from splashdam.model.broker_errors import BrokerResponseError
from splashdam.model.values import TopicPartition
from splashdam.storage.manager.topic_registry import Topic
from splashdam.storage.topic_names import folded

NOBODY = -1
"""The leader's node id of a partition that has no leader."""


class PartitionState(NamedTuple):
    """The replicas of a partition and its leader.

    Attributes:
        replicas: node ids, the preferred leader first.
        isr: replicas in sync; a non-empty subset of ``replicas``.
        leader: node id, `NOBODY` while no member of ``isr`` is alive.
        leader_epoch: incremented when the leader changes or a replica is removed.
        partition_epoch: incremented with every change.
        adding_replicas: members of ``replicas`` that a reassignment adds.
        removing_replicas: members of ``replicas`` that are removed when the reassignment completes.
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
        return bool(self.adding_replicas or self.removing_replicas)


class IsrProposal(NamedTuple):
    """The ISR that a leader asks the controller to accept (AlterPartition).

    Attributes:
        isr: node ids of the replicas that are in sync now.
        leader_epoch: the epoch in which the proposer leads.
        partition_epoch: of the partition state that the proposer knows.
    """

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


IsrAnswer: TypeAlias = PartitionState | BrokerResponseError
"""The controller's answer to a proposal: the new state of the partition, or the error that refuses it."""


@attrs.frozen
class BrokerState:
    """A broker that has registered.

    Attributes:
        node_id: id of the broker.
        epoch: of its registration; every registration in the cluster gets a higher one.
        listeners: advertised addresses by listener name; empty without a TCP port.
        is_fenced: it is down: it leads nothing, and stays in an ISR only as its last member.
        is_shutting_down: it is in controlled shutdown, and becomes leader of nothing more.
        rack: ``broker.rack``, None if not set.
    """

    node_id: int
    epoch: int
    listeners: Mapping[str, Address] = attrs.field(factory=dict)
    is_fenced: bool = False
    is_shutting_down: bool = False
    rack: str | None = None

    @property
    def is_eligible(self) -> bool:
        """Whether it may become leader or join an ISR."""
        return not self.is_fenced and not self.is_shutting_down


class Resource(NamedTuple):
    """Key of options that all brokers share; whoever stores them chooses ``kind``."""

    kind: str
    name: str


@attrs.frozen(kw_only=True)
class ClusterChange:
    """One atomic change of the cluster's metadata.

    Attributes:
        topics: created topics, and those with changed options or partitions; by name.
        deleted: topics that are deleted.
        partitions: new states.
        brokers: registered, fenced or unfenced brokers, by node id.
        resources: options that replace the stored ones (of brokers, users, quotas…); empty to delete them.
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
        brokers: every broker that has ever registered, by node id.
        resources: other options that all brokers share.
        names_by_fold: topic names by the form that metrics give them (``folded``), to find collisions.
    """

    def __init__(self, brokers: Mapping[int, BrokerState] | None = None) -> None:
        self.topics: dict[str, Topic] = {}
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.brokers: dict[int, BrokerState] = dict(brokers or {})
        self.resources: dict[Resource, Mapping[str, str]] = {}
        self.names_by_fold: dict[str, str] = {}

    def apply(self, change: ClusterChange) -> None:
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
        """Return the whole state as one change, for a broker that has just registered."""
        return ClusterChange(
            topics=dict(self.topics),
            partitions=dict(self.partitions),
            brokers=dict(self.brokers),
            resources=dict(self.resources),
        )

    def rack_of(self, node_id: int) -> str | None:
        """Return ``broker.rack`` of a broker; None if unknown."""
        broker = self.brokers.get(node_id)
        return None if broker is None else broker.rack

    def is_eligible(self, node_id: int) -> bool:
        """Whether a broker may become leader or join an ISR."""
        broker = self.brokers.get(node_id)
        return broker is not None and broker.is_eligible

    def eligible(self) -> list[int]:
        """Return the node ids of all brokers that may lead, sorted."""
        return [node_id for node_id in sorted(self.brokers) if self.brokers[node_id].is_eligible]

    def partitions_of(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Return the partitions of ``topics``; unknown topics are skipped."""
        return [
            TopicPartition(name, number)
            for name in topics
            if name in self.topics
            for number in self.topics[name].partitions
        ]
