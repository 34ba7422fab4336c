"""Totals that only grow, with snapshots from the recent past: rates and averages are differences of the two.

Code that counts adds to plain attributes, at most once per request or batch, and reads no clock. From time to
time the windows are rolled, and all counters store its totals. Kafka keeps one sampled sum per metric instead
(``SampledStat``) and reads the clock for each; ``metrics()`` shows the same values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import ClassVar


class WindowedCounters:
    """Base of groups of counters: subclasses declare them as annotated attributes with default 0.

    Attributes whose name ends in ``_max`` hold the largest value of the present window; the others are
    totals.

    Args:
        samples: how many windows to keep, the present one included; at least 1.
    """

    TOTALS: ClassVar[tuple[str, ...]] = ()
    MAXIMA: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        names = [name for name, kind in cls.__annotations__.items() if not str(kind).startswith("ClassVar")]
        cls.TOTALS = tuple(name for name in names if not name.endswith("_max"))
        cls.MAXIMA = tuple(name for name in names if name.endswith("_max"))

    def __init__(self, samples: int) -> None:
        for name in (*self.TOTALS, *self.MAXIMA):
            setattr(self, name, 0)
        self._starts: deque[dict[str, float]] = deque([self.totals()], maxlen=samples)
        self._closed: deque[dict[str, float]] = deque(maxlen=samples - 1)

    def totals(self) -> dict[str, float]:
        """Return the present value of all totals."""
        return {name: getattr(self, name) for name in self.TOTALS}

    def roll(self) -> None:
        """End the present window and begin the next."""
        self._starts.append(self.totals())
        self._closed.append({name: getattr(self, name) for name in self.MAXIMA})
        for name in self.MAXIMA:
            setattr(self, name, 0)

    def growth(self, name: str) -> float:
        """Return by how much a total has grown during the kept windows."""
        return float(getattr(self, name) - self._starts[0][name])

    def largest(self, name: str) -> float:
        """Return the largest value of the kept windows."""
        return float(max([getattr(self, name), *(window[name] for window in self._closed)]))


class Windows:
    """The windows of all counters of one producer, which begin and end together.

    Args:
        samples: how many windows to keep, the present one included (Kafka: ``metrics.num.samples``).
        window_ms: length of a window (Kafka: ``metrics.sample.window.ms``).
        now_ms: start of the first window.

    Attributes:
        samples: as given.
        due_ms: end of the present window.
    """

    def __init__(self, samples: int, window_ms: float, now_ms: float) -> None:
        self.samples = samples
        self.due_ms = now_ms + window_ms
        self._window_ms = window_ms
        self._kept = 1
        self._counters: list[WindowedCounters] = []

    def add(self, counters: WindowedCounters) -> None:
        """Include a group of counters in future rolls."""
        self._counters.append(counters)

    def roll(self, now_ms: float) -> None:
        """End the windows whose time is up. Not safe in two threads at the same time."""
        if now_ms < self.due_ms:
            return
        passed = 1 + int((now_ms - self.due_ms) // self._window_ms)
        self.due_ms += passed * self._window_ms
        self._kept = min(self._kept + passed, self.samples)
        for counters in list(self._counters):
            # After as many rolls all kept windows are empty, and further ones change nothing.
            for _ in range(min(passed, self.samples)):
                counters.roll()

    def elapsed_s(self, now_ms: float) -> float:
        """Return the divisor of rates: seconds since the first kept window began."""
        first_ms = self.due_ms - self._kept * self._window_ms
        elapsed_ms = now_ms - first_ms
        # As in Kafka (``Rate.windowSize``) at least all windows but the last count: otherwise a burst right
        # after the start would look like a very high rate.
        missing = self.samples - 1 - int(elapsed_ms // self._window_ms)
        return max(elapsed_ms + max(missing, 0) * self._window_ms, 1.0) / 1000


class Readings:
    """Several counters of one class, read as one.

    Args:
        counters: the counters to add up.
        elapsed_s: as ``Windows.elapsed_s`` returns.
    """

    def __init__(self, counters: Sequence[WindowedCounters], elapsed_s: float) -> None:
        self._counters = counters
        self._elapsed_s = elapsed_s

    def total(self, name: str) -> float:
        """Return a total since the start."""
        return float(sum(getattr(counters, name) for counters in self._counters))

    def rate(self, name: str) -> float:
        """Return the growth of a total per second."""
        return self._growth(name) / self._elapsed_s

    def average(self, name: str, count: str) -> float:
        """Return the growth of one total divided by that of another; 0 if nothing was counted."""
        counted = self._growth(count)
        return self._growth(name) / counted if counted else 0.0

    def largest(self, name: str) -> float:
        """Return the largest value; 0 if nothing was counted."""
        return float(max((counters.largest(name) for counters in self._counters), default=0))

    def _growth(self, name: str) -> float:
        return sum(counters.growth(name) for counters in self._counters)
