"""Rows with timestamps and headers of their own, on both twins: the bytes of single appends."""

from __future__ import annotations

from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.model.errors import IllegalArgumentError
from splashdam.model.values import TopicPartition
from splashdam.record.kernel.building.headers import encode_headers
from splashdam.record.kernel.bulk.bulk import NULL_KEY_SLOT

PARTS = st.one_of(st.none(), st.binary(max_size=60))
HEADERS = st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=5), PARTS), max_size=3))
TIMES = st.integers(-(1 << 63), (1 << 63) - 1)
ROWS = st.lists(
    st.tuples(PARTS, PARTS, HEADERS, TIMES).filter(lambda row: row[:2] != (None, None)), max_size=40
)


class Bench:
    """A lane with a batch of one twin."""

    def __init__(self, kernel: ModuleType, capacity_bytes: int = 1 << 20) -> None:
        self.kernel = kernel
        self.lane = kernel.PartitionLane(TopicPartition("t", 0))
        self.topic = kernel.TopicLanes([self.lane], self.lane, 0, 1 << 40)
        self.buffer = kernel.BatchBuffer(capacity_bytes)
        self.lane.open(self.buffer, kernel.BatchOutcome(self.lane.topic_partition))
        self.tails = kernel.RunTails()
        self.tails.reserve(1)
        self.tails.begin(0, self.lane)

    def records(self, rows: Any, *, keyed: bool = True, max_bytes: int = 1 << 20) -> Any:
        """Rows of key, value, headers and timestamp."""
        column = self.kernel.BlobColumn.of_objects
        return self.kernel.BulkRecords(
            column([value for _, value, _, _ in rows]),
            column([key for key, *_ in rows]) if keyed else None,
            None,
            max_bytes,
            array("q", [timestamp_ms for *_, timestamp_ms in rows]).tobytes(),
            column([encode_headers(tuple(headers)) if headers else None for _, _, headers, _ in rows]),
        )

    def append(self, records: Any) -> int:
        """As many as will."""
        row: int = records.append(self.lane, None, self.tails, 7, 0, 1 << 40)
        return row


@given(rows=ROWS, spread=st.booleans(), capacity_bytes=st.sampled_from([500, 1 << 20]))
def test_the_bytes_are_those_of_single_appends(
    twins: tuple[ModuleType, ModuleType], rows: Any, spread: bool, capacity_bytes: int
) -> None:
    """In order, with times that go back, until the batch is full; by slot as well as straight."""
    alone = twins[0].BatchBuffer(capacity_bytes)
    fit = 0
    while fit < len(rows):
        key, value, headers, timestamp_ms = rows[fit]
        if not alone.try_append(timestamp_ms, key, value, headers or None):
            break
        fit += 1
    for kernel in twins:
        bench = Bench(kernel, capacity_bytes)
        records = bench.records(rows)
        if spread:
            slots = bytearray(2 * len(rows))
            assert records.spread(bench.topic, bench.tails, slots, 0, 7, 0, len(rows)) == fit
        else:
            assert bench.append(records) == fit
        assert bytes(bench.buffer.view()) == bytes(alone.view())
        assert bench.buffer.max_timestamp_ms == alone.max_timestamp_ms
        assert bench.buffer.base_timestamp_ms == alone.base_timestamp_ms


def test_slots_without_keys(kernel: ModuleType) -> None:
    """With given partitions no keys are needed; null slots go to the sticky partition."""
    bench = Bench(kernel)
    slots = bytearray(array("H", [0, NULL_KEY_SLOT, 0]).tobytes())
    records = bench.records([(None, b"v", None, 1)] * 3, keyed=False)
    assert records.spread(bench.topic, bench.tails, slots, 0, 7, 0, 3) == 3
    assert bytes(slots) == bytes(6)
    assert bench.topic.sticky_bytes > 0


def test_headers_count_for_the_size(kernel: ModuleType) -> None:
    """A row that may be too large for a request is left to the slow path."""
    row = (None, bytes(50), [("h", bytes(50))], 1)
    size = len(encode_headers(tuple(row[2])))
    assert Bench(kernel).append(Bench(kernel).records([row], keyed=False, max_bytes=50 + size - 1)) == 0
    assert Bench(kernel).append(Bench(kernel).records([row], keyed=False, max_bytes=50 + size)) == 1
    bare = (None, bytes(50), None, 1)
    assert Bench(kernel).append(Bench(kernel).records([bare], keyed=False, max_bytes=50)) == 0
    assert Bench(kernel).append(Bench(kernel).records([bare], keyed=False, max_bytes=51)) == 1


def test_what_is_odd_or_short(kernel: ModuleType) -> None:
    """A header block that is not bytes stops there; short columns are refused or end the call."""
    column = kernel.BlobColumn.of_objects
    values = column([b"v"] * 3)
    with pytest.raises(IllegalArgumentError, match="3 values, but 2 timestamps"):
        kernel.BulkRecords(values, None, None, 1000, bytes(23), None)
    with pytest.raises(TypeError):
        kernel.BulkRecords(values, None, None, 1000, 8, None)
    odd = kernel.BulkRecords(values, None, None, 1000, None, column([b"\0", "odd", b"\0"]))
    assert Bench(kernel).append(odd) == 1
    blocks = [b"\0"] * 3
    shrunk = kernel.BulkRecords(values, None, None, 1000, bytes(24), column(blocks))
    blocks.pop()
    assert Bench(kernel).append(shrunk) == 2


@given(headers=HEADERS)
def test_header_blocks(twins: tuple[ModuleType, ModuleType], headers: Any) -> None:
    """As the encoder makes them, from lists and tuples."""
    expected = encode_headers(tuple(headers or ()))
    for kernel in twins:
        assert kernel.header_block(headers) == expected
        assert headers is None or kernel.header_block(tuple(headers)) == expected


@pytest.mark.parametrize(
    "odd",
    [
        {"k": b"v"},
        "text",
        1,
        [("k",)],
        [["k", b"v"]],
        [("k", bytearray())],
        [(b"k", b"v")],
        [("\ud800", b"")],
    ],
)
def test_headers_that_are_no_plain_pairs(kernel: ModuleType, odd: Any) -> None:
    """Nothing is raised: somebody else says what is wrong."""
    assert kernel.header_block(odd) is None
