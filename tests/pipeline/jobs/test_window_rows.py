"""Windows by arithmetic, and what people write for aggregates, keys and durations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.jobs.window_query import (
    Aggregate,
    Key,
    WindowQuery,
    parse_aggregate,
    parse_duration_ms,
    parse_key,
    windows_of,
)

COUNT = (Aggregate("count", None, "count"),)


@given(st.integers(-(10**6), 10**6), st.integers(1, 500), st.data())
def test_windows_of(time_us: int, size_us: int, data: st.DataObject) -> None:
    """Exactly the multiples of the slide whose window holds the time, before 1970, too."""
    slide_us = data.draw(st.integers(1, size_us))
    nearby = range(time_us - size_us - slide_us, time_us + slide_us)
    expected = [start for start in nearby if start % slide_us == 0 and start <= time_us < start + size_us]
    assert windows_of(time_us, size_us, slide_us) == expected


@pytest.mark.parametrize(
    ("text", "aggregate"),
    [
        ("count", Aggregate("count", None, "count")),
        ("flights=count(*)", Aggregate("count", None, "flights")),
        ("sum(value.delay)", Aggregate("sum", "value.delay", "sum_delay")),
        ("avg(a + b)", Aggregate("avg", "a + b", "avg_a_b")),
        ("most = max( delay )", Aggregate("max", " delay ", "most")),
    ],
)
def test_aggregates(text: str, aggregate: Aggregate) -> None:
    """A function of an expression, with a name or without."""
    assert parse_aggregate(text) == aggregate


@pytest.mark.parametrize("text", ["", "median(x)", "sum", "sum()", "x=", "count(x"])
def test_no_aggregates(text: str) -> None:
    """Are refused with the functions that there are."""
    with pytest.raises(KafkaConfigurationError):
        parse_aggregate(text)


def test_keys() -> None:
    """A column has its own name; an expression needs one."""
    assert parse_key("value.carrier") == Key("carrier", "value.carrier")
    assert parse_key("day=date(timestamp)") == Key("day", "date(timestamp)")
    assert parse_key("same=a == b") == Key("same", "a == b")
    for text in ("", "date(timestamp)", "a == b"):
        with pytest.raises(KafkaConfigurationError, match="NAME=EXPRESSION"):
            parse_key(text)


def test_durations() -> None:
    """A number and a unit."""
    assert [parse_duration_ms(text) for text in ("250ms", "90 s", "5m", "1h", "2d")] == [
        250,
        90_000,
        300_000,
        3_600_000,
        172_800_000,
    ]
    with pytest.raises(KafkaConfigurationError, match="not a duration"):
        parse_duration_ms("5 minutes")


@pytest.mark.parametrize(
    ("text", "offer"),
    [
        ("0.5s", "here 500ms"),
        (".5s", "here 500ms"),
        ("1m30s", "here 90s"),
        ("1h 30m", "here 90m"),
        ("5 minutes", "here 5m"),
        ("-5m", "such as 90s or 5m"),
        ("0.5ms", "such as 90s or 5m"),
        ("5", "such as 90s or 5m"),
        ("5M", "such as 90s or 5m"),
        ("s", "such as 90s or 5m"),
        ("9" * 5000 + ".5s", "such as 90s or 5m"),
    ],
)
def test_a_duration_of_another_form_was_refused_without_the_right_one(text: str, offer: str) -> None:
    """It did not say that the number is a whole one, nor that there is one unit."""
    said = f"is not a duration: write a whole number without a sign, and one of ms, s, m, h, d: {offer}$"
    with pytest.raises(KafkaConfigurationError, match=said):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("size_ms", "slide_ms", "delay_ms", "said"),
    [
        (0, None, 0, "size_ms=0s: too short: give 1ms to 365000d"),
        (5, 6, 0, "slide_ms=6ms is longer than size_ms=5ms: windows must not begin further apart"),
        (5, -1, 0, "slide_ms=-1ms: too short"),
        (5, 0, 0, "slide_ms=0s: too short"),
        (5, 5, -1, "delay_ms=-1ms: too short: give 0s to"),
        (5, 5, 366_000 * 86_400_000, "delay_ms=366000d: too long"),
        (10**20, 5, 0, "size_ms=100000000000000000s: too long"),
    ],
)
def test_windows_that_make_no_sense(size_ms: int, slide_ms: int | None, delay_ms: int, said: str) -> None:
    """Gaps between windows would lose rows without a word, and Spark's times end somewhere."""
    with pytest.raises(KafkaConfigurationError, match=f"^{said}"):
        WindowQuery("t", size_ms, delay_ms, COUNT, slide_ms=slide_ms)


def test_columns_need_names_of_their_own() -> None:
    """Keys, aggregates and the window's ends stand in one row."""
    with pytest.raises(KafkaConfigurationError, match="column count is defined twice"):
        WindowQuery("t", 5, 0, COUNT, (Key("count", "x"),))
    with pytest.raises(KafkaConfigurationError, match="no aggregate is given"):
        WindowQuery("t", 5, 0, ())
