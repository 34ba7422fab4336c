"""Many records in one call: the bytes of single appends, on both twins, and a stop at what is unusual."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.model.errors import IllegalArgumentError
from splashdam.model.values import TopicPartition
from splashdam.record.kernel.bulk.bulk import NULL_KEY_SLOT, ODD_KEY_SLOT
from splashdam.record.reader import read_records
from splashdam.record.sealing import seal

PARTS = st.one_of(st.none(), st.binary(max_size=200))
PAIRS = st.lists(st.tuples(PARTS, PARTS).filter(lambda pair: pair != (None, None)), max_size=60)
HEADERS = st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=5), PARTS), min_size=1, max_size=3))


class Topic:
    """Lanes of one twin, with batches of a given capacity."""

    def __init__(self, kernel: ModuleType, partitions: int = 1, capacity_bytes: int = 4096) -> None:
        self.kernel = kernel
        self.capacity_bytes = capacity_bytes
        self.lanes = [kernel.PartitionLane(TopicPartition("t", number)) for number in range(partitions)]
        self.topic = kernel.TopicLanes(self.lanes, self.lanes[0], 0, 1 << 40)
        self.tails = kernel.RunTails()
        self.tails.reserve(partitions)
        self.batches: list[list[Any]] = [[] for _ in range(partitions)]

    def open(self, partition: int) -> Any:
        """A new batch takes the partition's records, and a run begins in it."""
        lane = self.lanes[partition]
        lane.withdraw()
        buffer = self.kernel.BatchBuffer(self.capacity_bytes)
        lane.open(buffer, self.kernel.BatchOutcome(lane.topic_partition))
        self.batches[partition].append(buffer)
        assert self.tails.begin(partition, lane) == (lane.outcome, 0)
        return buffer

    def records(self, values: Any, keys: Any = None, headers: Any = None, max_bytes: int = 1 << 20) -> Any:
        """As the kernels take them."""
        column = self.kernel.BlobColumn.of_objects
        return self.kernel.BulkRecords(
            column(values), None if keys is None else column(keys), headers, max_bytes
        )

    def append(self, records: Any, start: int = 0, stop: int = 1 << 40, timestamp_ms: int = 7) -> int:
        """To partition 0."""
        row: int = records.append(self.lanes[0], None, self.tails, timestamp_ms, start, stop)
        return row


@given(pairs=PAIRS, headers=HEADERS, timestamp_ms=st.integers(-(1 << 63), (1 << 63) - 1))
def test_the_bytes_are_those_of_single_appends(
    twins: tuple[ModuleType, ModuleType], pairs: Any, headers: Any, timestamp_ms: int
) -> None:
    """Whatever keys, values, nulls, headers and times, over two calls."""
    one_by_one = twins[0].BatchBuffer(1 << 20)
    for key, value in pairs:
        assert one_by_one.try_append(timestamp_ms, key, value, headers)
    for kernel in twins:
        topic = Topic(kernel, capacity_bytes=1 << 20)
        buffer = topic.open(0)
        records = topic.records([value for _, value in pairs], tuple(key for key, _ in pairs), headers)
        middle = len(pairs) // 2
        assert topic.append(records, 0, middle, timestamp_ms) == middle
        assert topic.append(records, middle, timestamp_ms=timestamp_ms) == len(pairs)
        assert bytes(buffer.view()) == bytes(one_by_one.view())
        assert buffer.record_count == len(pairs) == topic.tails.next_index(0)
        assert buffer.max_timestamp_ms == one_by_one.max_timestamp_ms
        assert buffer.base_timestamp_ms == one_by_one.base_timestamp_ms


@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=80), capacity_bytes=st.integers(61, 2000))
def test_it_stops_where_the_batch_is_full(
    twins: tuple[ModuleType, ModuleType], sizes: list[int], capacity_bytes: int
) -> None:
    """Exactly where a single append would have found no room."""
    values = [b"v" * size for size in sizes]
    one_by_one = twins[0].BatchBuffer(capacity_bytes)
    fit = 0
    while fit < len(values) and one_by_one.try_append(7, None, values[fit], None):
        fit += 1
    for kernel in twins:
        topic = Topic(kernel, capacity_bytes=capacity_bytes)
        buffer = topic.open(0)
        assert topic.append(topic.records(values)) == fit
        assert bytes(buffer.view()) == bytes(one_by_one.view())


class Bytes(bytes):
    """Not quite bytes: its methods are anybody's."""


@pytest.mark.parametrize("odd", ["text", bytearray(b"a"), memoryview(b"a"), 1, Bytes(b"a")], ids=type)
def test_it_stops_before_what_is_not_bytes(kernel: ModuleType, odd: Any) -> None:
    """In the values and in the keys; what came before is in."""
    topic = Topic(kernel)
    topic.open(0)
    assert topic.append(topic.records([b"a", None, b"b", odd, b"c"], [b"k"] * 5)) == 3
    assert topic.append(topic.records([b"a", b"b"], [None, odd])) == 1
    records = topic.records([b"a", odd])
    assert records.values[1] is odd
    assert topic.lanes[0].buffer.record_count == 4


def test_it_stops_before_what_send_refuses(kernel: ModuleType) -> None:
    """Neither key nor value, and more bytes than the limit."""
    topic = Topic(kernel)
    topic.open(0)
    assert topic.append(topic.records([b"a", None])) == 1
    assert topic.append(topic.records([b"a", None], [None, None])) == 1
    assert topic.append(topic.records([b"aaa", b"aaaa"], [b"k", b"k"], max_bytes=4)) == 1


def test_lists_are_read_as_they_are_at_the_call(kernel: ModuleType) -> None:
    """A list that grew, shrank or moved in memory between two calls; keys fewer than values."""
    values: list[Any] = [b"a", b"b"]
    keys: list[Any] = [b"k"]
    topic = Topic(kernel)
    topic.open(0)
    records = topic.records(values, keys)
    assert topic.append(records) == 1
    keys += [b"k"] * 5_000
    values += [b"v"] * 20
    assert topic.append(records, 1) == 22
    values.clear()
    assert len(records) == 0
    assert topic.append(records, 5) == 5
    with pytest.raises(IndexError):
        _ = records.values[0]
    assert len(kernel.BlobColumn()) == 0
    with pytest.raises(TypeError, match="a list or a tuple, not str"):
        kernel.BlobColumn.of_objects("abc")


def test_a_run_ends_where_somebody_else_has_appended(kernel: ModuleType) -> None:
    """Or where another batch is open: nothing is appended until a run begins."""
    topic = Topic(kernel)
    buffer = topic.open(0)
    records = topic.records([b"a"] * 4)
    assert topic.append(records, 0, 2) == 2
    assert topic.tails.begin(0, topic.lanes[0]) is None
    buffer.try_append(7, None, b"another's", None)
    assert topic.append(records, 2) == 2
    assert topic.tails.begin(0, topic.lanes[0]) == (topic.lanes[0].outcome, 3)
    assert topic.append(records, 2, 3) == 3
    topic.open(0)
    topic.lanes[0].withdraw()
    assert topic.append(records, 3) == 3
    assert topic.tails.begin(0, topic.lanes[0]) is None
    for call in (topic.tails.next_index, lambda slot: topic.tails.begin(slot, topic.lanes[0])):
        with pytest.raises(IndexError, match="slot 1 of 1"):
            call(1)


def test_the_sticky_lane_hears_of_its_bytes(kernel: ModuleType) -> None:
    """By ``append`` if it is told the topic."""
    topic = Topic(kernel)
    buffer = topic.open(0)
    records = topic.records([b"abc"] * 3)
    assert records.append(topic.lanes[0], topic.topic, topic.tails, 7, 0, 3) == 3
    assert topic.topic.sticky_bytes == buffer.size_bytes - 61


@given(
    keys=st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=80),
    partitions=st.integers(1, 7),
    capacity_bytes=st.integers(200, 1000),
)
def test_keys_spread_the_records(
    twins: tuple[ModuleType, ModuleType], keys: list[bytes | None], partitions: int, capacity_bytes: int
) -> None:
    """Each partition holds, in order, the records whose keys hash to it; null keys are on the sticky one."""
    for kernel in twins:
        topic = Topic(kernel, partitions, capacity_bytes)
        values = [b"%d" % number for number in range(len(keys))]
        records = topic.records(values, keys)
        slots = bytearray(2 * len(keys))
        records.hash_keys(partitions, slots, 0, 0, len(keys))
        row = 0
        while row < len(keys):
            end = records.spread(topic.topic, topic.tails, slots, row, 7, row, len(keys))
            if end == row:
                slot = memoryview(slots).cast("H")[row]
                topic.open(0 if slot == NULL_KEY_SLOT else slot)
            row = end
        expected: list[list[Any]] = [[] for _ in range(partitions)]
        for key, value in zip(keys, values, strict=True):
            number = 0 if key is None else (twins[0].murmur2(key) & 0x7FFFFFFF) % partitions
            expected[number].append((key, value))
        found = [
            [(record.key, record.value) for buffer in batches for record in read_records(seal(buffer))]
            for batches in topic.batches
        ]
        assert found == expected
        entries = memoryview(slots).cast("H").tolist()
        assert [entries.count(number) for number in range(partitions)] == [len(each) for each in expected]
        assert [kernel.count_slot(slots, 0, stop) for stop in range(len(keys) + 1)] == [
            entries[:stop].count(0) for stop in range(len(keys) + 1)
        ]


def test_spread_stops_at_odd_keys_and_full_sticky_partitions(kernel: ModuleType) -> None:
    """The slow path refuses the one and switches the other."""
    topic = Topic(kernel, 2)
    topic.open(0)
    topic.open(1)
    records = topic.records([b"v"] * 3, [None, None, "text"])
    slots = bytearray(6)
    records.hash_keys(2, slots, 0, 0, 3)
    assert memoryview(slots).cast("H").tolist() == [NULL_KEY_SLOT, NULL_KEY_SLOT, ODD_KEY_SLOT]
    topic.topic.sticky_limit_bytes = 1
    assert records.spread(topic.topic, topic.tails, slots, 0, 7, 0, 3) == 1
    topic.topic.stick_to(topic.lanes[1], 0)
    assert records.spread(topic.topic, topic.tails, slots, 1, 7, 1, 3) == 2
    assert memoryview(slots).cast("H").tolist() == [0, 1, ODD_KEY_SLOT]
    assert records.spread(topic.topic, topic.tails, slots, 2, 7, 2, 3) == 2


def test_slots_that_are_not_there_are_refused(kernel: ModuleType) -> None:
    """No kernel writes or reads beyond the memory it was given."""
    topic = Topic(kernel)
    topic.open(0)
    records = topic.records([b"v"] * 3, [b"k"] * 3)
    slots = bytearray(4)
    for at, start, stop in ((0, 0, 3), (1, 0, 2), (-1, 0, 1), (0, -1, 1), (0, 2, 1)):
        with pytest.raises(IllegalArgumentError, match="rows"):
            records.hash_keys(1, slots, at, start, stop)
        with pytest.raises(IllegalArgumentError, match="rows"):
            records.spread(topic.topic, topic.tails, slots, at, 7, start, stop)
    for count in (0, -1, 0xFFFF):
        with pytest.raises(IllegalArgumentError, match="partitions"):
            records.hash_keys(count, slots, 0, 0, 2)
    with pytest.raises(IllegalArgumentError, match="row -1"):
        topic.append(records, -1)
    with pytest.raises(IllegalArgumentError, match="there are no keys"):
        topic.records([b"v"]).hash_keys(1, slots, 0, 0, 1)
