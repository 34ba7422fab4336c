"""What filters leave to be read: never less than what passes them."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.pipeline.filters import ALL, EVERY_ROW, Span, wanted_rows

datasource = pytest.importorskip("pyspark.sql.datasource", reason="needs splashdam[spark]")

COMPARISONS = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def a_filter(kind: str, column: str, *value: Any) -> Any:
    """One of Spark's filters."""
    return getattr(datasource, kind)((column,), *value)


def negated(child: Any) -> Any:
    """Spark's NOT."""
    return datasource.Not(child)


def test_no_filter_leaves_nothing_out() -> None:
    """Everything may be wanted."""
    assert wanted_rows([]) == EVERY_ROW
    assert EVERY_ROW.may_have("t", 0)
    assert not EVERY_ROW.offsets.is_bounded


@given(st.lists(st.tuples(st.sampled_from(sorted(COMPARISONS)), st.integers(-3, 8)), max_size=4))
def test_trap_4_offsets_that_pass_are_in_the_span(filters: list[tuple[str, int]]) -> None:
    """Trap 4: the span of offsets is exact for comparisons, and Spark filters again anyway."""
    wanted = wanted_rows([a_filter(kind, "offset", value) for kind, value in filters])
    for offset in range(-5, 10):
        passes = all(COMPARISONS[kind](offset, value) for kind, value in filters)
        assert (wanted.offsets.first <= offset < wanted.offsets.end) == passes


@given(
    st.lists(st.tuples(st.sampled_from(sorted(COMPARISONS)), st.integers(-3000, 5000)), max_size=3),
    st.integers(-4, 6),
)
def test_timestamps_are_rounded_so_that_more_passes(
    filters: list[tuple[str, int]], timestamp_ms: int
) -> None:
    """Filters have microseconds, records have milliseconds."""
    zone = timezone(timedelta(hours=2))
    wanted = wanted_rows(
        a_filter(kind, "timestamp", (EPOCH + timedelta(microseconds=value)).astimezone(zone))
        for kind, value in filters
    )
    passes = all(COMPARISONS[kind](timestamp_ms * 1000, value) for kind, value in filters)
    assert (wanted.timestamps_ms.first <= timestamp_ms < wanted.timestamps_ms.end) == passes


CASES: list[tuple[Any, list[str]]] = [
    (a_filter("EqualTo", "topic", "ab"), ["ab"]),
    (a_filter("In", "topic", ("ab", "b")), ["ab", "b"]),
    (a_filter("In", "topic", ("ab", None)), ["a", "ab", "b"]),
    (a_filter("StringStartsWith", "topic", "a"), ["a", "ab"]),
    (a_filter("StringEndsWith", "topic", "b"), ["ab", "b"]),
    (a_filter("StringContains", "topic", "a"), ["a", "ab"]),
    (a_filter("GreaterThan", "topic", "a"), ["ab", "b"]),
    (a_filter("LessThanOrEqual", "topic", "ab"), ["a", "ab"]),
    (a_filter("IsNull", "topic"), []),
    (a_filter("IsNotNull", "topic"), ["a", "ab", "b"]),
    (a_filter("EqualTo", "topic", 5), ["a", "ab", "b"]),
    (negated(a_filter("EqualTo", "topic", "ab")), ["a", "b"]),
    (negated(a_filter("In", "topic", ("a", "b"))), ["ab"]),
    (negated(a_filter("IsNull", "topic")), ["a", "ab", "b"]),
    (negated(a_filter("EqualTo", "topic", None)), ["a", "ab", "b"]),
]


@pytest.mark.parametrize(("one", "topics"), CASES, ids=lambda value: str(value)[:60])
def test_topics_are_distinguished(one: Any, topics: list[str]) -> None:
    """A topic is left out where the filter is certain to be false."""
    assert [topic for topic in ("a", "ab", "b") if wanted_rows([one]).may_have(topic, 0)] == topics


def test_partitions_are_distinguished() -> None:
    """The number of a partition is as constant as its topic."""
    wanted = wanted_rows([a_filter("In", "partition", (1, 2)), negated(a_filter("EqualTo", "partition", 2))])
    assert [number for number in range(4) if wanted.may_have("t", number)] == [1]


def test_contradicting_filters_select_nothing() -> None:
    """No partition is read for an offset that cannot be."""
    wanted = wanted_rows([a_filter("GreaterThan", "offset", 5), a_filter("LessThan", "offset", 3)])
    assert wanted.offsets.is_empty
    assert not wanted.may_have("t", 0)


UNKNOWN = [
    a_filter("EqualTo", "value", b"x"),
    a_filter("EqualTo", "timestamp", datetime(2026, 1, 1)),  # nobody says in which zone
    a_filter("IsNotNull", "offset"),
    a_filter("In", "offset", (1, None)),
    a_filter("In", "offset", ()),
    a_filter("EqualTo", "offset", True),
    negated(a_filter("EqualTo", "offset", 3)),
    datasource.EqualTo(("headers", "key"), "x"),
]


@pytest.mark.parametrize("one", UNKNOWN, ids=str)
def test_unsupported_filters_exclude_nothing(one: Any) -> None:
    """Other columns, nulls, times without a zone, negations of ranges."""
    wanted = wanted_rows([one])
    assert wanted.offsets == wanted.timestamps_ms == ALL
    assert wanted.may_have("t", 0)


def test_values_in_a_list_give_their_span() -> None:
    """From the smallest to the largest."""
    assert wanted_rows([a_filter("In", "offset", (9, 4))]).offsets == Span(4, 10)
