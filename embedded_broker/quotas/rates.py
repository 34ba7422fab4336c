"""Rates over sliding windows, and buckets of tokens: Kafka's ``Rate``, ``SampledStat`` and ``TokenBucket``.

Pure: time is an argument, in milliseconds of any monotonic clock.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from splashdam.model.options import MAX_INT


class Windows(NamedTuple):
    """``quota.window.num`` windows of ``quota.window.size.seconds``."""

    number: int = 11
    size_ms: int = 1000


class _Sample:
    __slots__ = ("last_event_ms", "start_ms", "value")

    def __init__(self, now_ms: float) -> None:
        self.start_ms = self.last_event_ms = now_ms
        self.value = 0.0


class Rate:
    """Recorded values per second, over all full windows and the elapsed part of the present one.

    A window begins with the first value after the end of the previous one. As in Kafka, it counts as a whole
    until its last value is older than all windows together, and time is counted from the start of the oldest.
    """

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[_Sample] = deque()
        self.last_ms = 0.0

    def record(self, value: float, now_ms: float) -> None:
        """Add a value; a negative one undoes an earlier one."""
        self.last_ms = now_ms
        if not self._samples or now_ms - self._samples[-1].start_ms >= self._windows.size_ms:
            self._samples.append(_Sample(now_ms))
            if len(self._samples) > self._windows.number + 1:
                self._samples.popleft()
        sample = self._samples[-1]
        sample.value += value
        sample.last_event_ms = now_ms

    def per_second(self, now_ms: float) -> float:
        span_ms = self._span_ms(now_ms)
        return sum(sample.value for sample in self._samples) / span_ms * 1000

    def throttle_ms(self, bound: float, now_ms: float) -> int:
        """Return the time until the rate is back at the bound if nothing is recorded; 0 if it is not above.

        With O the rate, T the bound and W the windows' time: O · W / (W + X) = T, solved for X.
        """
        rate = self.per_second(now_ms)
        return _answerable((rate - bound) / bound * self._span_ms(now_ms)) if rate > bound else 0

    def _span_ms(self, now_ms: float) -> float:
        size_ms, count = self._windows.size_ms, self._windows.number
        while self._samples and now_ms - self._samples[0].last_event_ms >= count * size_ms:
            self._samples.popleft()
        elapsed_ms = now_ms - self._samples[0].start_ms if self._samples else 0.0
        missing = count - 1 - int(elapsed_ms / size_ms)
        return max(elapsed_ms + max(missing, 0) * size_ms, 1.0)


class TokenBucket:
    """A token bucket with a burst of all windows; its balance may become negative."""

    def __init__(self, windows: Windows) -> None:
        self._seconds = windows.number * windows.size_ms / 1000
        self._tokens = 0.0
        self.last_ms = float("-inf")  # a new bucket is full

    def take(self, count: float, rate: float, now_ms: float) -> None:
        """Take tokens; the balance may become negative."""
        self._tokens = min(rate * self._seconds, self.left(rate, now_ms) - count)
        self.last_ms = now_ms

    def left(self, rate: float, now_ms: float) -> float:
        return min(rate * self._seconds, self._tokens + rate * (now_ms - self.last_ms) / 1000)

    def throttle_ms(self, rate: float, now_ms: float) -> int:
        """Return the time until the balance is not negative."""
        left = self.left(rate, now_ms)
        return _answerable(-left / rate * 1000) if left < 0 else 0


def _answerable(throttle_ms: float) -> int:
    """Limit a throttle time to an int32, 24 days: a quota may be arbitrarily small."""
    return round(min(throttle_ms, MAX_INT))
