"""One partition rule: the slow ways, the fast path of both twins, and the rows of a bulk."""

from __future__ import annotations

from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.client.partitioning.partitioners import hashed_partition
from splashdam.client.partitioning.placing import fill_slots, lane_of_slot, place
from splashdam.model.values import TopicPartition
from splashdam.net.reentrant_lock import ReentrantLock
from splashdam.record import kernel as chosen
from splashdam.record.kernel.bulk.bulk import NULL_KEY_SLOT

COUNTS = st.integers(min_value=1, max_value=300)
TWINS = pytest.mark.parametrize("twin", ["_kernel_py", "_kernel_c"], ids=["python", "c"])
KEYS = st.none() | st.binary(max_size=40)


def kernel_named(twin: str) -> ModuleType:
    kernel: ModuleType = pytest.importorskip(f"splashdam.record.kernel.{twin}")
    return kernel


class Topic:
    """A topic with an open batch in every partition, and the fast path over it."""

    def __init__(self, kernel: ModuleType, count: int) -> None:
        self.kernel = kernel
        self.lanes = [kernel.PartitionLane(TopicPartition("t", number)) for number in range(count)]
        self.route = kernel.TopicLanes(self.lanes, self.lanes[count // 2], 61, 1 << 20)
        self.path = kernel.FastPath(
            wall_ns=lambda: 0, future_type=kernel.FutureCell, fits_bytes=1000, guard=ReentrantLock()
        )
        self.path.publish("t", self.route)

    def open(self) -> None:
        for lane in self.lanes:
            lane.open(self.kernel.BatchBuffer(200), self.kernel.BatchOutcome(lane.topic_partition))

    def number(self, lane: Any) -> int:
        """Return the lane's partition number; that of the sticky one for None."""
        return int((self.route.sticky if lane is None else lane).topic_partition.partition)


@TWINS
@given(data=st.data(), count=COUNTS, key=KEYS)
def test_the_fast_path_follows_the_rule(twin: str, data: st.DataObject, count: int, key: Any) -> None:
    """A record goes to the given partition, else by its key's hash, else to the sticky partition."""
    partition = data.draw(st.none() | st.integers(min_value=0, max_value=count - 1))
    topic = Topic(kernel_named(twin), count)
    topic.open()
    future = topic.path.try_send("t", b"v", key, None, partition)
    assert future.outcome.topic_partition.partition == topic.number(place(topic.route, partition, key))


@TWINS
@given(data=st.data(), count=COUNTS, key=st.binary(max_size=40))
def test_a_key_that_opens_a_batch_is_hashed_once(
    twin: str, data: st.DataObject, count: int, key: bytes
) -> None:
    """The path leaves the lane that it found, for this very key and this one look."""
    topic = Topic(kernel_named(twin), count)
    assert topic.path.try_send("t", b"v", key) is None
    missed = topic.route.missed
    assert missed[0] is key
    assert missed[1] is topic.lanes[hashed_partition(key, count)]
    assert place(topic.route, None, key) is missed[1]
    assert topic.route.missed is None
    other = data.draw(st.binary(max_size=40))
    assert topic.path.try_send("t", b"v", key) is None
    assert place(topic.route, None, other) is topic.lanes[hashed_partition(other, count)]
    assert topic.path.try_send("t", b"v", key) is None
    assert place(topic.route, 0, key) is topic.lanes[0]


@given(
    count=COUNTS,
    rows=st.lists(st.tuples(KEYS, st.none() | st.integers(0, 299)), max_size=20),
    at=st.integers(0, 3),
)
def test_the_rows_of_a_bulk_follow_the_rule(count: int, rows: list[tuple[Any, int | None]], at: int) -> None:
    """With partitions of their own, or without; what lies beyond the topic has no lane."""
    topic = Topic(chosen, count)
    keys = [key for key, _ in rows]
    own = array("H", [NULL_KEY_SLOT if number is None else number for _, number in rows])
    records = chosen.BulkRecords(
        chosen.BlobColumn.of_objects([b"v"] * len(rows)), chosen.BlobColumn.of_objects(keys), None, 1000
    )
    for given_ones in (own, None):
        slots = bytearray(2 * (at + len(rows)))
        fill_slots(records, given_ones, count, slots, at, 0, len(rows))
        for slot, (key, number) in zip(array("H", bytes(slots))[at:], rows, strict=True):
            partition = None if given_ones is None else number
            lane = lane_of_slot(topic.route, slot)
            if partition is not None and partition >= count:
                assert lane is None
            else:
                assert lane is not None
                assert topic.number(lane) == topic.number(place(topic.route, partition, key))


def test_the_applications_partitioner_comes_before_the_key() -> None:
    """A partition given with the record comes before both."""
    topic = Topic(chosen, 5)
    assert place(topic.route, None, b"key", lambda: 4) is topic.lanes[4]
    assert place(topic.route, 2, b"key", lambda: 4) is topic.lanes[2]
    assert place(topic.route, None, None, lambda: 4) is topic.lanes[4]
