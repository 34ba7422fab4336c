"""Brokers whose partitions have a single replica: a move of the leader moves the files to the new disk.

Producers see leader moves without the faults of replication, so such a run tests the client alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import attrs

from lab.simulator.cluster import PORT, ROOT, BrokerNode, Parts, SimulatedCluster
from splashdam.embedded_broker.controller.leadership import Leader
from splashdam.embedded_broker.controller.producer_ids import ProducerIds, ProducerIdSource
from splashdam.embedded_broker.controller.state import NOBODY, PartitionState
from splashdam.embedded_broker.execution.answers import Address
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.files.disk import Files
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.log import Log
from splashdam.storage.topic_names import TRANSACTION_STATE


@attrs.define
class LeadershipMap:
    """A `Leadership` that is set by hand: brokers share it instead of a controller.

    Attributes:
        producer_ids: shared by all brokers.
        addresses: of every broker, by node id.
        leaders: of every partition.
    """

    producer_ids: ProducerIdSource
    addresses: dict[int, Address] = attrs.field(factory=dict)
    leaders: dict[TopicPartition, Leader] = attrs.field(factory=dict)

    def brokers(self, reached_at: Address, *, with_fenced: bool = False) -> Mapping[int, Address]:
        """See `Leadership`; no broker is ever fenced."""
        return self.addresses

    def leader_of(self, topic_partition: TopicPartition) -> Leader | None:
        """See `Leadership`."""
        return self.leaders.get(topic_partition)

    @property
    def controller_id(self) -> int:
        """The lowest node id."""
        return min(self.addresses, default=NOBODY)

    def partition(self, topic_partition: TopicPartition) -> PartitionState | None:
        """See `Leadership`; the leader is the only replica."""
        leader = self.leaders.get(topic_partition)
        if leader is None:
            return None
        nodes = () if leader.node_id == NOBODY else (leader.node_id,)
        return PartitionState(nodes, nodes, *leader)

    def hosts(self, node_id: int, topic_partition: TopicPartition) -> bool:
        """See `Leadership`; only the leader has a replica."""
        leader = self.leaders.get(topic_partition)
        return leader is not None and leader.node_id == node_id

    def appoint(self, topic_partition: TopicPartition, node_id: int) -> Leader:
        """Make a broker, or `NOBODY`, the leader in the next leader epoch; the first epoch is 0."""
        before = self.leaders.get(topic_partition)
        leader = Leader(node_id, 0 if before is None else before.leader_epoch + 1)
        self.leaders[topic_partition] = leader
        return leader


class SingleReplicaCluster(SimulatedCluster):
    """A `SimulatedCluster` whose partitions have one replica each, at their leader."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.map = LeadershipMap(ProducerIds(MemoryFiles(), "/", above=-1))
        for node in self.nodes.values():
            self.map.addresses[node.node_id] = Address(node.host, PORT)
        for topic in self.topics:
            for partition in range(topic.partitions):
                leader = 1 + (partition + len(topic.name)) % len(self.nodes)
                self.map.appoint(TopicPartition(topic.name, partition), leader)
        self.map.appoint(TopicPartition(TRANSACTION_STATE, 0), 1)  # node 1 coordinates

    def options_of(self, node: BrokerNode) -> dict[str, Any]:
        """Return the map of leaders, and a single partition for the transaction coordinator."""
        return {"leadership": self.map, "transaction_state_log_num_partitions": 1}

    def opened(self, node: BrokerNode) -> None:
        """Create the missing topics, and watch all logs."""
        assert node.broker is not None
        missing = [topic for topic in self.topics if node.broker.topics.get(topic.name) is None]
        if missing:
            node.broker.topics.add(missing)
        for log in node.broker.logs.logs.values():
            self.parts.append_errors.watch(log, node.node_id)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that applications write to."""
        return [each for each in sorted(self.map.leaders) if each.topic != TRANSACTION_STATE]

    def leader_log(self, topic_partition: TopicPartition) -> Log | None:
        """Return the leader's log; None if it is down."""
        node = self.nodes[self.map.leaders[topic_partition].node_id]
        return None if node.broker is None else node.broker.logs.logs.get(topic_partition)

    def move(self, topic_partition: TopicPartition, to: int) -> None:
        """Move a partition to a node, also from a broker that is down; do nothing if a disk is faulty."""
        old = self.nodes[self.map.leaders[topic_partition].node_id]
        new = self.nodes[to]
        if old is new or new.broker is None or old.files.is_faulty or new.files.is_faulty:
            return
        clean = self._let_go(old, topic_partition)
        leader = self.map.appoint(topic_partition, to)
        directory = f"{ROOT}/{topic_partition}"
        move_directory(old.files, directory, new.files, directory)
        new.broker.logs.take_over(
            topic_partition,
            leader_epoch=leader.leader_epoch,
            now_ms=self.parts.clock.wall_ms(),
            clean_shutdown=clean,
        )
        self.parts.append_errors.watch(new.broker.logs.logs[topic_partition], to)
        self.record.note("leader", f"{topic_partition} {old.host} -> {new.host} {leader.leader_epoch}")
        self.record.count("leader moves" if clean else "leader moves from a broker that failed")

    def _let_go(self, old: BrokerNode, topic_partition: TopicPartition) -> bool:
        """Close the log at the old leader, and return whether that was in order."""
        if old.broker is None:
            return False
        try:
            old.broker.logs.release(topic_partition)
        except KafkaStorageError:
            return False
        finally:
            old.broker.parking.changed(topic_partition)
        return True


def move_directory(source: Files, old: str, target: Files, new: str) -> None:
    """Move the files of a directory without subdirectories to another disk, durably.

    Raises:
        KafkaStorageError: one of the disks refuses.
    """
    target.make_directory(new)
    for name, is_directory in source.list_directory(old):
        assert not is_directory, f"{old}/{name}"
        data = source.read_bytes(f"{old}/{name}")
        assert data is not None
        target.write_atomic(f"{new}/{name}", data)
        modified_ms = source.modified_ms(f"{old}/{name}")
        target.set_modified_ms(f"{new}/{name}", modified_ms or 0)
    target.sync_directory(os.path.dirname(new))
    source.remove_tree(old)
    source.sync_directory(os.path.dirname(old))
