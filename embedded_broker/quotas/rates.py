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
    """What was recorded per second, over all windows but the last, and what has passed of that.

    A window begins with the first value that comes after the end of the one before. It counts as long as
    its last value is not older than all windows together; as in Kafka it then counts as a whole, and time is
    counted from its beginning.
    """

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[_Sample] = deque()
        self.last_ms = 0.0

    def record(self, value: float, now_ms: float) -> None:
        """Adds a value, which may be negative: taken back."""
        self.last_ms = now_ms
        if not self._samples or now_ms - self._samples[-1].start_ms >= self._windows.size_ms:
            self._samples.append(_Sample(now_ms))
            if len(self._samples) > self._windows.number + 1:
                self._samples.popleft()
        sample = self._samples[-1]
        sample.value += value
        sample.last_event_ms = now_ms

    def per_second(self, now_ms: float) -> float:
        """The rate now."""
        span_ms = self._span_ms(now_ms)
        return sum(sample.value for sample in self._samples) / span_ms * 1000

    def throttle_ms(self, bound: float, now_ms: float) -> int:
        """How long until the rate is back at the bound if nothing is recorded; 0 where it is not above.

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
    """Tokens that come at a rate, as many as come in all windows at most; what is taken may be owed."""

    def __init__(self, windows: Windows) -> None:
        self._seconds = windows.number * windows.size_ms / 1000
        self._tokens = 0.0
        self.last_ms = float("-inf")  # a new bucket is full

    def take(self, count: float, rate: float, now_ms: float) -> None:
        """Takes tokens, be they there or not."""
        self._tokens = min(rate * self._seconds, self.left(rate, now_ms) - count)
        self.last_ms = now_ms

    def left(self, rate: float, now_ms: float) -> float:
        """The tokens that are there; negative where some are owed."""
        return min(rate * self._seconds, self._tokens + rate * (now_ms - self.last_ms) / 1000)

    def throttle_ms(self, rate: float, now_ms: float) -> int:
        """How long until nothing is owed."""
        left = self.left(rate, now_ms)
        return _answerable(-left / rate * 1000) if left < 0 else 0


def _answerable(throttle_ms: float) -> int:
    """At most what an answer can say, 24 days: a quota may be as small as one likes."""
    return round(min(throttle_ms, MAX_INT))
