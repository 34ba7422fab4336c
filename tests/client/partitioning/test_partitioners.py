"""Partitioners: where Kafka's own clients put a key, and how null keys are spread."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from splashdam.client.partitioning.partitioners import (
    ClusterView,
    DefaultPartitioner,
    Partitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
    hashed_partition,
    partition_function,
)
from splashdam.model.cluster import ClusterMetadata, Node, PartitionInfo, TopicInfo
from splashdam.model.errors import KafkaConfigurationError


def cluster_view(leaders: list[int], topic: str = "t") -> ClusterView:
    partitions = tuple(PartitionInfo(topic, number, leader) for number, leader in enumerate(leaders))
    return ClusterView(
        ClusterMetadata(nodes={0: Node(0, "h", 1)}, topics={topic: TopicInfo(topic, partitions)})
    )


def draws(*numbers: float) -> Any:
    sequence: Iterator[float] = iter(numbers)
    return lambda: next(sequence)


def choose(partitioner: Any, view: ClusterView, key: bytes | None = None, value: bytes = b"v") -> int:
    return partition_function(partitioner)("t", key, key, value, value, view)


@pytest.mark.parametrize(
    ("key", "partition"),
    [
        (b"", 681),
        (b"a", 524),
        (b"kafka", 580),
        (b"123456789", 566),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", 677),
        (bytes(range(256)), 374),
    ],
)
def test_keys_go_where_kafka_puts_them(key: bytes, partition: int) -> None:
    """Vectors of Kafka's own Utils.murmur2, of 1,000 partitions."""
    assert hashed_partition(key, 1_000) == partition
    assert choose(DefaultPartitioner(), cluster_view([0] * 1_000), key) == partition


def test_keys_agree_with_kafka_python() -> None:
    """The same partition for many keys."""
    theirs = pytest.importorskip("kafka.partitioner")
    for number in range(500):
        key = b"key-%d" % number
        assert hashed_partition(key, 12) == (theirs.murmur2(key) & 0x7FFFFFFF) % 12


def test_a_missing_leader_does_not_move_keys() -> None:
    """Keys are spread over all partitions, not over the available ones."""
    full, half = cluster_view([0] * 12), cluster_view([0, -1] * 6)
    for key in (b"kafka", b"user-1", b"order:42"):
        assert choose(DefaultPartitioner(), full, key) == choose(DefaultPartitioner(), half, key)


def test_null_keys_use_partitions_with_a_leader() -> None:
    """Uniformly; all partitions while none has a leader."""
    partitioner = DefaultPartitioner(draws(0.0, 0.5, 0.99))
    view = cluster_view([-1, 0, -1, 0, 0])
    assert [choose(partitioner, view) for _ in range(3)] == [1, 3, 4]
    assert choose(DefaultPartitioner(draws(0.99)), cluster_view([-1, -1])) == 1


def test_sticky_stays_until_a_batch_is_complete() -> None:
    """Then the sticky partition changes to another one, never to the same again."""
    partitioner = StickyPartitioner(draws(0.5, 0.0))
    view = cluster_view([0, 0, 0])
    assert [choose(partitioner, view) for _ in range(3)] == [1, 1, 1]
    partitioner.on_new_batch("t", view, 1)
    assert choose(partitioner, view) == 0
    partitioner.on_new_batch("t", view, 1)  # another thread's late report
    assert choose(partitioner, view) == 0
    assert choose(partitioner, view, b"kafka") == hashed_partition(b"kafka", 3)


def test_sticky_leaves_a_partition_without_leader() -> None:
    """It draws again among those that have one."""
    partitioner = StickyPartitioner(draws(0.0, 0.0))
    assert choose(partitioner, cluster_view([0, 0])) == 0
    assert choose(partitioner, cluster_view([-1, 0])) == 1


def test_sticky_with_one_partition() -> None:
    """There is nowhere else to go."""
    partitioner = StickyPartitioner()
    view = cluster_view([0])
    assert choose(partitioner, view) == 0
    partitioner.on_new_batch("t", view, 0)
    assert choose(partitioner, view) == 0


def test_round_robin_serves_all_alike() -> None:
    """From a random start, keys or not, only partitions with a leader."""
    partitioner = RoundRobinPartitioner(draws(0.5))
    view = cluster_view([0, -1, 0, 0])
    assert [choose(partitioner, view, key) for key in (None, b"k", None, b"k")] == [2, 3, 0, 2]
    counts = Counter(choose(RoundRobinPartitioner(), view) for _ in range(300))
    assert set(counts) == {0, 2, 3}


def test_round_robin_without_any_leader() -> None:
    """Over all partitions then, each topic from a start of its own."""
    partitioner = RoundRobinPartitioner(draws(0.4, 0.9))
    away = cluster_view([-1, -1, -1])
    assert [choose(partitioner, away) for _ in range(4)] == [1, 2, 0, 1]
    other = cluster_view([0, 0], "u")
    assert [partitioner.partition("u", None, None, b"v", b"v", other) for _ in range(3)] == [1, 0, 1]


def test_partitioners_pickle() -> None:
    """They are part of a configuration that may travel to a worker."""
    view = cluster_view([0, 0])
    for partitioner in (DefaultPartitioner(), StickyPartitioner(), RoundRobinPartitioner()):
        choose(partitioner, view)
        again = pickle.loads(pickle.dumps(partitioner))
        assert choose(again, view) in (0, 1)


class OldStyle:
    """kafka-python 2.x's signature."""

    def partition(self, topic: str, key: bytes, cluster: ClusterView) -> int:
        return len(cluster.partitions_for_topic(topic) or ()) - 1


class ByValue(Partitioner):
    def partition(self, topic, key, serialized_key, value, *rest):  # type: ignore[no-untyped-def]
        return int(value)


def test_accepted_kinds() -> None:
    """Functions with sorted lists, and two generations of kafka-python's interface."""
    view = cluster_view([0, -1, 0])
    assert choose(OldStyle(), view) == 2
    assert choose(ByValue(), view, value=b"1") == 1
    asked = []
    assert choose(lambda *arguments: asked.append(arguments) or 2, view, b"k") == 2
    assert asked == [(b"k", [0, 1, 2], [0, 2])]


@pytest.mark.parametrize("partitioner", ["murmur2", 3, DefaultPartitioner])
def test_anything_else_is_refused(partitioner: Any) -> None:
    """A class instead of an instance is the common slip."""
    with pytest.raises(KafkaConfigurationError, match="is not a partitioner"):
        partition_function(partitioner)


def test_an_unknown_topic_is_an_error() -> None:
    """As kafka-python's partitioners have it."""
    view = cluster_view([0])
    assert view.topics() == {"t"}
    assert view.partitions_for_topic("u") is None
    assert view.available_partitions_for_topic("u") is None
    for partitioner in (DefaultPartitioner(), RoundRobinPartitioner(), StickyPartitioner()):
        with pytest.raises(ValueError, match="not in the cluster's metadata"):
            partitioner.partition("u", None, None, b"v", b"v", view)
