"""Null keys go where fewer batches wait (KIP-794)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from splashdam.accumulator.accumulator import RecordAccumulator
from splashdam.accumulator.readiness import NodeAvailability
from splashdam.client.partitioning.partitioners import DefaultPartitioner, cumulative_weights
from splashdam.client.partitioning.placing import LoadAwareDraw
from splashdam.model.cluster import ClusterMetadata, Node, PartitionInfo, TopicInfo
from splashdam.model.values import TopicPartition
from splashdam.record.compression import NO_COMPRESSION


def test_weights() -> None:
    """KIP-794's example, and its draws."""
    assert cumulative_weights([0, 3, 1]) == [4, 5, 8]
    drawn = [DefaultPartitioner(lambda n=n: n / 8).draw([0, 1, 2], [0, 3, 1]) for n in range(8)]
    assert drawn == [0, 0, 0, 0, 1, 2, 2, 2]


def test_equal_queues_are_uniform() -> None:
    """As if nobody had looked."""
    drawn = [DefaultPartitioner(lambda n=n: n / 4).draw([5, 6, 7, 8], [2, 2, 2, 2]) for n in range(4)]
    assert drawn == [5, 6, 7, 8]


class Queues:
    """Partitions of one topic, with batches waiting for some."""

    def __init__(self, waiting: dict[int, int], partitions: int, **options: Any) -> None:
        self.accumulator = RecordAccumulator(
            batch_bytes=0,
            linger_ms=5,
            buffer_memory=1_000_000,
            compression=NO_COMPRESSION,
            delivery_timeout_ms=1000,
            retry_backoff_ms=100,
            retry_backoff_max_ms=1000,
            random=lambda: 0.5,
            **options,
        )
        self.lanes = [self.accumulator.lane(TopicPartition("t", number)) for number in range(partitions)]
        for number, batches in waiting.items():
            for _ in range(batches):
                self.accumulator.append(TopicPartition("t", number), 0, 0, None, b"v", None)
        infos = tuple(PartitionInfo("t", number, number) for number in range(partitions))
        nodes = {number: Node(number, "h", number + 1) for number in range(partitions)}
        self.cluster = ClusterMetadata(nodes=nodes, topics={"t": TopicInfo("t", infos)})

    def drawn(self, *, adaptive: bool = True) -> dict[int, int]:
        numbers = iter(range(8))
        partitioner = DefaultPartitioner(lambda: next(numbers) / 8)
        draw = LoadAwareDraw(partitioner, self.accumulator, adaptive=adaptive)
        lanes = [draw(self.lanes, self.cluster) for _ in range(8)]
        return dict(Counter(lane.topic_partition.partition for lane in lanes))


@pytest.mark.parametrize(
    ("waiting", "adaptive", "expected"),
    [
        ({1: 3, 2: 1}, True, {0: 4, 1: 1, 2: 3}),
        ({1: 3, 2: 1}, False, {0: 3, 1: 3, 2: 2}),
        ({}, True, {0: 3, 1: 3, 2: 2}),
        ({0: 2, 1: 2, 2: 2}, True, {0: 3, 1: 3, 2: 2}),
    ],
)
def test_draws_by_what_waits(waiting: dict[int, int], adaptive: bool, expected: dict[int, int]) -> None:
    """By the queues of the accumulator, unless that is switched off."""
    assert Queues(waiting, 3).drawn(adaptive=adaptive) == expected


def test_nodes_that_lag_are_left_out() -> None:
    """Unless all of them do."""
    queues = Queues({0: 1}, 2, availability_timeout_ms=100)
    availability = queues.accumulator.availability
    availability.note(1, 0, writable=True)
    availability.note(1, 101, writable=False)
    assert queues.drawn() == {0: 8}
    availability.note(0, 0, writable=True)
    availability.note(0, 500, writable=False)
    assert set(queues.drawn()) == {0, 1}
    availability.note(1, 502, writable=True)
    assert queues.drawn() == {1: 8}


def test_availability_is_off_without_a_limit() -> None:
    """A node without any note does not count as lagging either."""
    off, on = NodeAvailability(0), NodeAvailability(50)
    off.note(1, 0, writable=True)
    off.note(1, 1e6, writable=False)
    assert not off.lags(1)
    assert not on.lags(1)
    on.note(1, 1000, writable=False)
    assert not on.lags(1)  # the first look begins the time
    on.note(1, 1051, writable=False)
    assert on.lags(1)
