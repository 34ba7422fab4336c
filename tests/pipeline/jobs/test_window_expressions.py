"""Expressions of windows that name columns; no Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.jobs.window_expressions import need_columns
from splashdam.pipeline.jobs.window_query import WindowQuery, parse_aggregate, parse_key
from splashdam.pipeline.schema import all_columns

DECODED = pa.struct(
    [("id", pa.int64()), ("a", pa.string()), ("A", pa.string()), ("many", pa.list_(pa.string()))]
)
COLUMNS = all_columns(True).arrow.append(pa.field("decoded", DECODED))


def query(*, time: str = "timestamp", by: str | None = None, compute: str = "count") -> WindowQuery:
    keys = () if by is None else (parse_key(by),)
    return WindowQuery(time, 1000, 0, (parse_aggregate(compute),), keys)


@pytest.mark.parametrize(
    "named",
    [
        query(),
        query(by="topic", compute="sum(offset)"),
        query(by="decoded.id", compute="avg(decoded.ID)"),
        query(time="Timestamp", by="k = timestampType", compute="min(value)"),
        query(compute="count(headers)"),
    ],
)
def test_names_of_columns_need_no_spark(named: WindowQuery) -> None:
    """Spark compares them without regard to case."""
    assert need_columns(named, COLUMNS)


@pytest.mark.parametrize(
    "judged",
    [
        query(time="decoded.id"),
        query(by="k=upper(topic)"),
        query(by="k=`topic`"),
        query(by="decoded.a"),
        query(by="key.x"),
        query(by="headers.key"),
        query(by="decoded.many"),
        query(by="now=current_date"),
        query(compute="sum(value)"),
        query(compute="count(1)"),
        query(compute="count(null)"),
        query(compute="max(headers)"),
    ],
)
def test_what_only_spark_can_judge_is_left_to_it(judged: WindowQuery) -> None:
    """SQL, values that are words, types that may not fit, and names that fit two fields."""
    assert not need_columns(judged, COLUMNS)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            query(compute="s = sum(nope)"),
            r"aggregates=sum\(nope\): there is no column nope\. The columns are key,",
        ),
        (query(by="decoded.idd"), "keys=decoded.idd: decoded has no field idd. Did you mean 'id'"),
        (query(time="decoded.null"), "time=decoded.null: decoded has no field null"),
    ],
)
def test_a_column_that_does_not_exist_was_found_by_spark(wrong: WindowQuery, said: str) -> None:
    """Ten seconds later; the setting is named, and what there is."""
    with pytest.raises(KafkaConfigurationError, match=said):
        need_columns(wrong, COLUMNS)
