"""What a batch query reads: never less than Spark's filters let pass, and nothing that is not there."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pipeline.local_source_kit import FakeCluster, FakeLog, batch_options, topic

from splashdam.model.broker_errors import UnknownTopicOrPartitionError
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.values import TopicPartition
from splashdam.pipeline.filters import wanted_rows
from splashdam.pipeline.local_source.planning import DataLossError, OffsetRange, Selection, batch_ranges

datasource = pytest.importorskip("pyspark.sql.datasource", reason="needs splashdam[spark]")

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMPARISONS = {
    "EqualTo": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
}
LOGS = st.lists(
    st.builds(FakeLog, st.integers(0, 5), st.lists(st.integers(-1, 12), max_size=12)), min_size=1, max_size=3
)
FILTERS = st.lists(
    st.tuples(
        st.sampled_from(sorted(COMPARISONS)),
        st.sampled_from(["partition", "offset", "timestamp"]),
        st.integers(-2, 13),
    ),
    max_size=4,
)


def selection(**given: str) -> Selection:
    """The selection of a batch query that subscribes to ``t``."""
    return batch_options(**given).selection


@given(LOGS, FILTERS)
def test_filters_lose_no_row(logs: list[FakeLog], filters: list[tuple[str, str, int]]) -> None:
    """Trap 4: what passes the filters is read, whatever the order of timestamps is."""
    cluster = FakeCluster(t=logs)
    wanted = wanted_rows([_filter(*each) for each in filters])
    read = batch_ranges(selection(), cluster, wanted)
    rows = {(each.where.partition, offset) for each in read for offset in range(each.first, each.end)}
    for number, log in enumerate(logs):
        for offset in range(log.first, log.end):
            row = {"partition": number, "offset": offset, "timestamp": log.timestamps[offset - log.first]}
            passes = all(COMPARISONS[kind](row[column], value) for kind, column, value in filters)
            assert (number, offset) in rows or not passes


def _filter(kind: str, column: str, value: Any) -> Any:
    operand = EPOCH + timedelta(milliseconds=value) if column == "timestamp" else value
    return getattr(datasource, kind)((column,), operand)


def test_young_records_are_found_by_time_and_old_ones_are_not() -> None:
    """Timestamps may go back, so a bound from above moves no end."""
    cluster = FakeCluster(t=[FakeLog(0, [1, 5, 2, 9, 3, 4])])
    since_5 = wanted_rows([_filter("GreaterThanOrEqual", "timestamp", 5)])
    before_5 = wanted_rows([_filter("LessThan", "timestamp", 5)])
    at_20 = wanted_rows([_filter("GreaterThan", "timestamp", 20)])
    assert batch_ranges(selection(), cluster, since_5) == [OffsetRange(T0, 1, 6)]
    assert batch_ranges(selection(), cluster, before_5) == [OffsetRange(T0, 0, 6)]
    assert batch_ranges(selection(), cluster, at_20) == []


def test_an_empty_topic_is_no_range() -> None:
    """Trap 8: an empty list, for which Spark plans a partition of its own."""
    assert batch_ranges(selection(), FakeCluster(t=topic(0, 0))) == []


def test_a_topic_that_is_not_there() -> None:
    """Is no empty topic."""
    with pytest.raises(UnknownTopicOrPartitionError, match="not in the cluster: u"):
        batch_ranges(selection(subscribe="t,u"), FakeCluster(t=topic(1)))


def test_a_start_after_its_end() -> None:
    """Trap 2: raises, naming partition and both offsets."""
    cluster = FakeCluster(t=topic(10))
    with pytest.raises(KafkaConfigurationError, match="t-0: the start 11 is after the end 10"):
        batch_ranges(selection(startingOffsets='{"t":{"0":11}}'), cluster)


def test_offsets_that_are_gone() -> None:
    """An error, or what is there."""
    cluster = FakeCluster(t=[FakeLog(5, [0] * 5)])
    given = {"startingOffsets": '{"t":{"0":2}}', "endingOffsets": '{"t":{"0":12}}'}
    with pytest.raises(DataLossError, match=r"t-0 was to be read from 2, it starts at 5.*failOnDataLoss"):
        batch_ranges(selection(**given), cluster)
    with pytest.raises(DataLossError, match="t-0 was to be read up to 12, it ends at 10"):
        batch_ranges(
            selection(**{**given, "startingOffsets": "earliest"}, **{"fetchOffset.retryIntervalMs": "0"}),
            cluster,
        )
    lenient = selection(**given, failOnDataLoss="false", **{"fetchOffset.retryIntervalMs": "0"})
    assert batch_ranges(lenient, cluster) == [OffsetRange(T0, 5, 10)]


def test_times_and_their_strategies() -> None:
    """No match is an error at the start, or the end by strategy; at the end it is the latest."""
    cluster = FakeCluster(t=[FakeLog(0, [1, 5, 9]), FakeLog(0, [1, 2])])
    with pytest.raises(KafkaConfigurationError, match="startingTimestamp: no record of t-1 at or after 5"):
        batch_ranges(selection(startingTimestamp="5"), cluster)
    latest = selection(startingTimestamp="5", startingOffsetsByTimestampStrategy="latest")
    assert batch_ranges(latest, cluster) == [OffsetRange(T0, 1, 3)]
    ending = selection(endingOffsetsByTimestamp='{"t":{"0":5,"1":5}}')
    assert batch_ranges(ending, cluster) == [OffsetRange(T0, 0, 1), OffsetRange(T1, 0, 2)]


def test_planning_is_cheap_and_changes_nothing() -> None:
    """Trap 10: with a filter Spark plans for each action and for explain; three questions at most then."""
    cluster = FakeCluster(t=topic(5, 5, 5))
    chosen, wanted = selection(), wanted_rows([_filter("GreaterThan", "timestamp", 0)])
    plans = [batch_ranges(chosen, cluster, wanted) for _ in range(2)]
    assert plans[0] == plans[1]
    assert cluster.questions == 6
    cluster.logs[T0].add(7, timestamp=3)
    assert batch_ranges(chosen, cluster, wanted) == [OffsetRange(T0, 5, 12)]
