"""Figures that only grow, and what they were some time ago: rates and averages come from the difference.

Whoever counts adds to plain attributes, at most once per request or batch, and reads no clock for it. Now and
then somebody rolls the windows, and each tally notes where it stands. Kafka keeps one sampled sum per metric
instead, and looks at the clock for each; what ``metrics()`` shows in the end is the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import ClassVar


class Tally:
    """Subclasses declare their figures as annotated attributes with 0 as their default.

    Those whose name ends in ``_max`` are the largest value of the present window, the others are totals.

    Args:
        samples: windows that are kept, the present one included; at least 1.
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
        """All totals now."""
        return {name: getattr(self, name) for name in self.TOTALS}

    def roll(self) -> None:
        """The present window ends here, and the next one begins."""
        self._starts.append(self.totals())
        self._closed.append({name: getattr(self, name) for name in self.MAXIMA})
        for name in self.MAXIMA:
            setattr(self, name, 0)

    def growth(self, name: str) -> float:
        """By how much a total has grown in the windows that are kept."""
        return float(getattr(self, name) - self._starts[0][name])

    def largest(self, name: str) -> float:
        """The largest value in the windows that are kept."""
        return float(max([getattr(self, name), *(window[name] for window in self._closed)]))


class Windows:
    """The windows of all tallies of one producer; they begin and end together.

    Args:
        samples: windows that are kept, the present one included.
        window_ms: how long one is.
        now_ms: when the first one begins.

    Attributes:
        samples: as above.
        due_ms: when the present window ends.
    """

    def __init__(self, samples: int, window_ms: float, now_ms: float) -> None:
        self.samples = samples
        self.due_ms = now_ms + window_ms
        self._window_ms = window_ms
        self._kept = 1
        self._tallies: list[Tally] = []

    def add(self, tally: Tally) -> None:
        """Rolls this one, too."""
        self._tallies.append(tally)

    def roll(self, now_ms: float) -> None:
        """Ends the windows whose time is up. Not by two threads at the same time."""
        if now_ms < self.due_ms:
            return
        passed = 1 + int((now_ms - self.due_ms) // self._window_ms)
        self.due_ms += passed * self._window_ms
        self._kept = min(self._kept + passed, self.samples)
        for tally in list(self._tallies):
            for _ in range(min(passed, self.samples)):
                tally.roll()

    def elapsed_s(self, now_ms: float) -> float:
        """What rates are divided by: the time since the first window that is kept began, in seconds.

        As in Kafka it is never taken to be less than all windows but the last: a burst right after the start
        would look like a very high rate.
        """
        first_ms = self.due_ms - self._kept * self._window_ms
        elapsed_ms = now_ms - first_ms
        missing = self.samples - 1 - int(elapsed_ms // self._window_ms)
        return max(elapsed_ms + max(missing, 0) * self._window_ms, 1.0) / 1000


class Readings:
    """Several tallies of one kind as if they were one.

    Args:
        tallies: what to add up.
        elapsed_s: as ``Windows.elapsed_s`` answers.
    """

    def __init__(self, tallies: Sequence[Tally], elapsed_s: float) -> None:
        self._tallies = tallies
        self._elapsed_s = elapsed_s

    def total(self, name: str) -> float:
        """Since the start."""
        return float(sum(getattr(tally, name) for tally in self._tallies))

    def rate(self, name: str) -> float:
        """Per second."""
        return self._growth(name) / self._elapsed_s

    def average(self, name: str, count: str) -> float:
        """One total by another; 0 where nothing was counted."""
        counted = self._growth(count)
        return self._growth(name) / counted if counted else 0.0

    def largest(self, name: str) -> float:
        """0 where nothing was counted."""
        return float(max((tally.largest(name) for tally in self._tallies), default=0))

    def _growth(self, name: str) -> float:
        return sum(tally.growth(name) for tally in self._tallies)
