"""The checksum of a buffer, which the compiled twin computes in steps as records are appended."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from splashdam.model.values import TopicPartition

SIZES = st.lists(st.integers(0, 300) | st.integers(1_000, 40_000), min_size=1, max_size=12)


def fill(buffer: Any, sizes: list[int]) -> None:
    draw = random.Random(repr(sizes))
    for size in sizes:
        assert buffer.try_append(7, None, draw.randbytes(size), None)


def right(buffer: Any) -> bool:
    return bool(buffer.checksum() == crc32c(buffer.view()[21:]))


@given(sizes=SIZES)
def test_of_any_records(kernel: ModuleType, sizes: list[int]) -> None:
    """Steps and what is left of them make one checksum, and asking changes nothing."""
    buffer = kernel.BatchBuffer(600_000)
    fill(buffer, sizes)
    buffer.view()[21:61] = bytes(range(40))
    assert right(buffer)
    assert right(buffer)
    fill(buffer, [5, 9_000])
    assert right(buffer)


@given(before=SIZES, after=SIZES)
def test_of_a_buffer_that_grows(kernel: ModuleType, before: list[int], after: list[int]) -> None:
    """What was summed stays so when the bytes move."""
    buffer = kernel.BatchBuffer(61 + sum(before) + 21 * len(before))
    fill(buffer, before)
    buffer.reserve(1_200_000)
    fill(buffer, after)
    assert right(buffer)


@pytest.mark.parametrize("asked", [True, False])
def test_of_a_buffer_that_is_used_again(kernel: ModuleType, asked: bool) -> None:
    """The next batch's is right, whether the last one asked for its own or was compressed."""
    buffer = kernel.BatchBuffer(200_000)
    for sizes in ([20_000, 3, 50_000], [100], [1_024] * 100):
        fill(buffer, sizes)
        if asked:
            assert right(buffer)
        assert buffer.recycle()
    for sizes in ([70_000, 9], [1_024] * 100):
        fill(buffer, sizes)
        assert right(buffer)
        assert buffer.recycle()


@given(sizes=SIZES)
def test_of_rows(kernel: ModuleType, sizes: list[int]) -> None:
    """Bulk calls checksum as `send` does."""
    draw = random.Random(repr(sizes))
    rows = [draw.randbytes(size) for size in sizes]
    buffer = kernel.BatchBuffer(600_000)
    fill(buffer, [1])
    lane, tails = kernel.PartitionLane(TopicPartition("t", 0)), kernel.RunTails()
    lane.open(buffer, kernel.BatchOutcome(TopicPartition("t", 0)))
    tails.reserve(1)
    tails.begin(0, lane)
    records = kernel.BulkRecords(kernel.BlobColumn.of_objects(rows), None, None, 1 << 20)
    assert records.append(lane, None, tails, 7, 0, len(rows)) == len(rows)
    assert right(buffer)


def test_of_no_records(kernel: ModuleType) -> None:
    """A header alone has one, too."""
    assert right(kernel.BatchBuffer(61))
