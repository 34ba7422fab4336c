"""Rates, averages and maxima over windows, compared with kafka-python's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.metrics import MetricConfig
from kafka.metrics.stats import Avg, Max, Rate

from splashdam.model.counters import Readings, WindowedCounters, Windows

WINDOW_MS = 1_000


class Events(WindowedCounters):
    amount: int = 0
    count: int = 0
    amount_max: int = 0

    def record(self, amount: int) -> None:
        self.amount += amount
        self.count += 1
        self.amount_max = max(self.amount_max, amount)


def readings(windows: Windows, counters: WindowedCounters, now_ms: float) -> Readings:
    windows.roll(now_ms)
    return Readings([counters], windows.elapsed_s(now_ms))


@given(
    samples=st.integers(1, 4),
    amounts=st.lists(st.integers(1, 100), min_size=1, max_size=20),
    late_ms=st.integers(1, 999),
)
def test_rates_averages_and_maxima_are_those_of_kafka_python(
    samples: int, amounts: list[int], late_ms: int
) -> None:
    """Several events in each window, which begin together here as there; asked somewhere in the last one."""
    config = MetricConfig(samples=samples, time_window_ms=WINDOW_MS)
    theirs = {"rate": Rate(), "average": Avg(), "largest": Max()}
    windows = Windows(samples, WINDOW_MS, 0)
    ours = Events(samples)
    windows.add(ours)
    now_ms = 0
    for number, amount in enumerate(amounts):
        now_ms = number * WINDOW_MS // 2
        windows.roll(now_ms)
        ours.record(amount)
        for stat in theirs.values():
            stat.record(config, amount, now_ms)
    now_ms = now_ms // WINDOW_MS * WINDOW_MS + max(late_ms, now_ms % WINDOW_MS)
    read = readings(windows, ours, now_ms)
    assert read.average("amount", "count") == pytest.approx(theirs["average"].measure(config, now_ms))
    assert read.largest("amount_max") == theirs["largest"].measure(config, now_ms)
    assert read.rate("amount") == pytest.approx(theirs["rate"].measure(config, now_ms))


def test_what_is_older_than_all_windows_counts_no_more() -> None:
    """Nothing happened for long: rates are 0, and the total stays."""
    windows = Windows(2, WINDOW_MS, 0)
    counters = Events(2)
    windows.add(counters)
    counters.record(7)
    assert readings(windows, counters, 500).rate("amount") == 7 / 1.5
    assert readings(windows, counters, 1_500).largest("amount_max") == 7
    read = readings(windows, counters, 10_500)
    assert (read.rate("amount"), read.average("amount", "count"), read.largest("amount_max")) == (0, 0, 0)
    assert read.total("amount") == 7


def test_several_tallies_are_read_as_one() -> None:
    windows = Windows(2, WINDOW_MS, 0)
    one, two = Events(2), Events(2)
    one.record(1)
    two.record(5)
    read = Readings([one, two], windows.elapsed_s(0))
    assert read.total("amount") == 6
    assert read.average("amount", "count") == 3
    assert read.largest("amount_max") == 5
    assert Readings([], 1).largest("amount_max") == 0
