"""Splits cover their ranges exactly; triggers take their shares as Spark's connector would."""

from __future__ import annotations

from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.model.values import TopicPartition
from splashdam.pipeline.local_source.planning import (
    WORTH_A_TASK,
    OffsetRange,
    Splitting,
    backlog_of,
    rate_limited,
)

SIZES = st.lists(st.integers(0, 3_000_000), max_size=5)
WISHES = st.builds(
    Splitting,
    st.none() | st.integers(1, 40),
    st.none() | st.integers(20_000, 5_000_000),
    st.none() | st.integers(1, 8),
)


def ranges_of(*sizes: int, first: int = 0) -> list[OffsetRange]:
    """Partitions of one topic with so many offsets each."""
    return [OffsetRange(TopicPartition("t", n), first, first + size) for n, size in enumerate(sizes)]


def sizes_of(ranges: list[OffsetRange]) -> list[int]:
    """How large each is."""
    return [each.size for each in ranges]


@given(SIZES, WISHES)
def test_pieces_are_the_ranges(sizes: list[int], splitting: Splitting) -> None:
    """No offset is read twice or left out, and no task is empty."""
    ranges = ranges_of(*sizes, first=17)
    pieces = splitting.split(ranges)
    assert all(piece.size > 0 for piece in pieces)
    for where, group in groupby(pieces, lambda piece: piece.where):
        of_one = list(group)
        assert all(one.end == two.first for one, two in pairwise(of_one))
        whole = ranges[where.partition]
        assert (of_one[0].first, of_one[-1].end) == (whole.first, whole.end)
    assert {piece.where for piece in pieces} == {each.where for each in ranges if each.size}
    if splitting.max_records is not None:
        assert all(piece.size <= splitting.max_records for piece in pieces)


@given(SIZES.filter(any), st.integers(1, 40))
def test_about_so_many_partitions_as_wished(sizes: list[int], wanted: int) -> None:
    """Rounding may take or add one for each range, as with Spark's connector."""
    pieces = Splitting(min_partitions=wanted).split(ranges_of(*sizes))
    filled = sum(size > 0 for size in sizes)
    if wanted <= filled:
        assert len(pieces) == filled
    elif all(size > 100 for size in sizes):
        assert abs(len(pieces) - wanted) <= filled


@pytest.mark.parametrize(
    ("sizes", "splitting", "expected"),
    [
        ([10, 0], Splitting(), [10]),
        ([10], Splitting(min_partitions=4), [2, 2, 3, 3]),
        ([5, 5], Splitting(min_partitions=3), [2, 3, 2, 3]),
        ([1, 100], Splitting(min_partitions=3), [1, 50, 50]),
        ([1, 1], Splitting(min_partitions=6), [1, 1]),
        ([10, 4], Splitting(max_records=4), [3, 3, 4, 4]),
        ([10, 4], Splitting(max_records=5, min_partitions=2), [5, 5, 4]),
        ([10, 4], Splitting(max_records=10, min_partitions=4), [3, 3, 4, 4]),
    ],
)
def test_splits_as_of_sparks_connector(sizes: list[int], splitting: Splitting, expected: list[int]) -> None:
    """Worked out by hand from its rules."""
    assert sizes_of(splitting.split(ranges_of(*sizes))) == expected


def test_one_large_partition_keeps_all_cores_busy() -> None:
    """Two pieces for each core, unless they would be too small to be worth a task."""
    two_cores = Splitting(cores=2)
    assert sizes_of(two_cores.split(ranges_of(2_000_000))) == [500_000] * 4
    assert sizes_of(two_cores.split(ranges_of(WORTH_A_TASK))) == [WORTH_A_TASK]
    assert sizes_of(two_cores.split(ranges_of(2 * WORTH_A_TASK, 10))) == [WORTH_A_TASK, WORTH_A_TASK, 10]


OFFSETS = st.dictionaries(
    st.builds(TopicPartition, st.just("t"), st.integers(0, 4)),
    st.tuples(st.integers(0, 1000), st.integers(-5, 2000)),
)


@given(OFFSETS, st.integers(1, 500))
def test_a_trigger_takes_its_limit_about(offsets: dict[TopicPartition, tuple[int, int]], limit: int) -> None:
    """Never past an end, never nothing of a backlog, and never more than one too many per partition."""
    start = {where: first for where, (first, _) in offsets.items()}
    latest = {where: first + size for where, (first, size) in offsets.items()}
    ends = rate_limited(limit, start, latest)
    assert ends.keys() == latest.keys()
    for where, end in ends.items():
        assert end <= latest[where]
        if latest[where] > start[where]:
            assert end > start[where]
    backlog = backlog_of(start, latest)
    taken = backlog_of(start, ends)
    assert min(limit, backlog) - len(ends) <= taken <= min(limit + len(ends), backlog)


def test_shares_are_rounded_as_by_sparks_connector() -> None:
    """Down, but up to one where a share is less than one."""
    t0, t1, t2 = (TopicPartition("t", number) for number in range(3))
    start = dict.fromkeys((t0, t1, t2), 100)
    assert rate_limited(10, start, {t0: 101, t1: 200, t2: 399}) == {t0: 101, t1: 102, t2: 107}
    assert rate_limited(10, start, {t0: 100, t1: 90, t2: 105}) == {t0: 100, t1: 90, t2: 105}


def test_offsets_that_went_backwards_are_no_backlog() -> None:
    """It would hide what is new elsewhere."""
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    assert backlog_of({t0: 100, t1: 0}, {t0: 10, t1: 5}) == 5


def test_a_wish_for_a_billion_tasks_ends() -> None:
    """There is one for each offset at most; the number was counted down before."""
    where = TopicPartition("t", 0)
    pieces = Splitting(min_partitions=10**9).split([OffsetRange(where, 5, 8)])
    assert pieces == [OffsetRange(where, number, number + 1) for number in (5, 6, 7)]
