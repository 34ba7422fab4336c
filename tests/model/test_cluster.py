"""A snapshot of the cluster answers what sender and partitioner ask."""

from __future__ import annotations

import attrs
import pytest

from splashdam.model.cluster import ClusterMetadata, Node, PartitionInfo, TopicInfo
from splashdam.model.values import TopicPartition

CLUSTER = ClusterMetadata(
    nodes={1: Node(1, "one", 9092), 2: Node(2, "two", 9093, rack="b")},
    topics={
        "t": TopicInfo(
            "t",
            (
                PartitionInfo("t", 0, leader=1, leader_epoch=4),
                PartitionInfo("t", 1, leader=-1),
                PartitionInfo("t", 2, leader=3),
            ),
        ),
        "missing": TopicInfo("missing", error_code=3),
    },
)


@pytest.mark.parametrize(
    ("topic", "number", "leader", "epoch"),
    [
        ("t", 0, 1, 4),
        ("t", 1, -1, -1),  # no leader at the moment
        ("t", 2, -1, -1),  # a leader that is not among the nodes cannot be reached
        ("t", 3, -1, -1),
        ("t", -1, -1, -1),
        ("missing", 0, -1, -1),
        ("unheard-of", 0, -1, -1),
    ],
)
def test_leader(topic: str, number: int, leader: int, epoch: int) -> None:
    """The leader is a node that can be reached, else -1."""
    assert CLUSTER.leader_for(TopicPartition(topic, number)) == leader
    assert CLUSTER.leader_epoch(TopicPartition(topic, number)) == epoch


def test_partition_numbers() -> None:
    """Keys are placed on all partitions, records without one on those that have a leader."""
    assert CLUSTER.partition_count("t") == 3
    assert CLUSTER.available_partitions("t") == (0,)
    assert CLUSTER.partition_count("missing") == CLUSTER.partition_count("unheard-of") == 0
    assert CLUSTER.available_partitions("unheard-of") == ()


def test_negative_partition_is_not_the_last_one() -> None:
    """Python's negative indexes do not leak into partition numbers."""
    assert CLUSTER.partition(TopicPartition("t", -1)) is None


def test_snapshot_cannot_change() -> None:
    """Threads may read a snapshot without a lock."""
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        CLUSTER.controller_id = 2  # type: ignore[misc]


def test_node_reads_well_in_messages() -> None:
    """Error messages name a node like this."""
    assert str(CLUSTER.nodes[2]) == "node 2 at two:9093"
