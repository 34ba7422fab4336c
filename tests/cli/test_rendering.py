"""A record as a line of output, whatever bytes and times it holds."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.cli.records.rendering import render_full, render_json, render_value
from splashdam.model.values import TopicPartition
from splashdam.record.reader import Record

WHERE = TopicPartition("t", 3)

nullable_bytes = st.none() | st.binary(max_size=20)
records = st.builds(
    Record,
    offset=st.integers(0, 2**63 - 1),
    timestamp_ms=st.integers(-(2**63), 2**63 - 1),
    key=nullable_bytes,
    value=nullable_bytes,
    headers=st.lists(st.tuples(st.text(max_size=5), nullable_bytes), max_size=3).map(tuple),
)


@given(records)
def test_every_record_can_be_shown(record: Record) -> None:
    """No key, value, header or timestamp is too strange, and JSON stays on one line."""
    assert render_value(WHERE, record) == (record.value or b"")
    assert render_full(WHERE, record).startswith(b"t-3@%d " % record.offset)
    line = render_json(WHERE, record)
    assert b"\n" not in line
    assert json.loads(line)["timestamp_ms"] == record.timestamp_ms


@pytest.mark.parametrize(
    ("timestamp_ms", "shown"),
    [
        (0, b"1970-01-01T00:00:00.000Z"),
        (-1, b"1969-12-31T23:59:59.999Z"),
        (1_357_034_400_123, b"2013-01-01T10:00:00.123Z"),
        (2**63 - 1, b"9223372036854775807ms"),
    ],
)
def test_times_are_utc(timestamp_ms: int, shown: bytes) -> None:
    """Times are shown in UTC; what is no date is shown as the number it is."""
    assert render_full(WHERE, Record(0, timestamp_ms, b"k", None, ())) == b"t-3@0 " + shown + b" k: (null)"
