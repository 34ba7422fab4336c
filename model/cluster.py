"""Cluster metadata as a client has it: an immutable snapshot that each Metadata response replaces."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import attrs

from splashdam.model.values import TopicPartition


class Node(NamedTuple):
    """A broker and its address. ``node_id`` is negative for a bootstrap address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"node {self.node_id} at {self.host}:{self.port}"


class PartitionInfo(NamedTuple):
    """One partition. ``leader`` is -1 without a leader; ``leader_epoch`` is -1 if unknown."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()


class TopicInfo(NamedTuple):
    """One topic. ``error_code`` is the broker's (0: none); partitions are in order of their numbers."""

    name: str
    partitions: tuple[PartitionInfo, ...] = ()
    error_code: int = 0
    topic_id: bytes = bytes(16)


@attrs.frozen
class ClusterMetadata:
    """A snapshot of brokers, topics and partition leaders."""

    nodes: Mapping[int, Node] = attrs.field(factory=dict)
    topics: Mapping[str, TopicInfo] = attrs.field(factory=dict)
    cluster_id: str | None = None
    controller_id: int = -1

    def partition(self, topic_partition: TopicPartition) -> PartitionInfo | None:
        """Return the partition's entry, or None if the topic or the partition number is unknown."""
        topic = self.topics.get(topic_partition.topic)
        if topic is None or not 0 <= topic_partition.partition < len(topic.partitions):
            return None
        return topic.partitions[topic_partition.partition]

    def leader_for(self, topic_partition: TopicPartition) -> int:
        """Return the leader's node id, or -1 if there is no leader or it is not among the known nodes."""
        name, number = topic_partition
        topic = self.topics.get(name)
        if topic is None or not 0 <= number < len(topic.partitions):
            return -1
        leader = topic.partitions[number].leader
        return leader if leader in self.nodes else -1

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """Return the leader epoch, -1 if unknown."""
        name, number = topic_partition
        topic = self.topics.get(name)
        if topic is None or not 0 <= number < len(topic.partitions):
            return -1
        return topic.partitions[number].leader_epoch

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions, 0 for an unknown topic."""
        info = self.topics.get(topic)
        return 0 if info is None else len(info.partitions)

    def available_partitions(self, topic: str) -> tuple[int, ...]:
        """Return the numbers of the partitions that have a leader, ascending."""
        return self._available.get(topic, ())

    @cached_property
    def _available(self) -> dict[str, tuple[int, ...]]:
        return {
            name: tuple(info.partition for info in topic.partitions if info.leader in self.nodes)
            for name, topic in self.topics.items()
        }
