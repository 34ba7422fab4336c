"""Brokers that keep one copy of each partition, with one map of leaders: a move takes the files along.

A partition's directory from one disk to another: what replication would have done by then.
"""

from __future__ import annotations

import os
from typing import Any

from lab.simulator.cluster import PORT, ROOT, BrokerNode, Parts, SimulatedCluster
from splashdam.embedded_broker.controller.leadership import LeadershipMap
from splashdam.embedded_broker.controller.producer_ids import ProducerIds
from splashdam.embedded_broker.execution.answers import Address
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.files.disk import Files
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.log import Log
from splashdam.storage.topic_names import TRANSACTION_STATE


class HandedOverLogs(SimulatedCluster):
    """A `SimulatedCluster` whose partitions have one replica each, wherever their leader is."""

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
        """The map, and one partition for the coordinator."""
        return {"leadership": self.map, "transaction_state_log_num_partitions": 1}

    def opened(self, node: BrokerNode) -> None:
        """Makes what topics are missing."""
        assert node.broker is not None
        missing = [topic for topic in self.topics if node.broker.topics.get(topic.name) is None]
        if missing:
            node.broker.topics.add(missing)
        for log in node.broker.logs.logs.values():
            self.parts.append_errors.watch(log, node.node_id)

    @property
    def partitions(self) -> list[TopicPartition]:
        """Those that applications write to."""
        return [each for each in sorted(self.map.leaders) if each.topic != TRANSACTION_STATE]

    def leader_log(self, topic_partition: TopicPartition) -> Log | None:
        """The log at the leader; None where it is down."""
        node = self.nodes[self.map.leaders[topic_partition].node_id]
        return None if node.broker is None else node.broker.logs.logs.get(topic_partition)

    def move(self, topic_partition: TopicPartition, to: int) -> None:
        """Another leader takes over, also from a broker that is down; nothing happens where one cannot."""
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
        """Whether the log was closed in order."""
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
    """Moves the files of one directory, which has none below it; when it returns the move is durable.

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
