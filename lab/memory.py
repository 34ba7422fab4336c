"""The memory and descriptors of a process, and whether its memory grows."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

import attrs

PRODUCERS_MAY_GROW_BYTES = 8 << 20
BROKER_MAY_GROW_BYTES = 16 << 20
"""For all broker processes together, which run one after the other and are killed at different moments."""
WARM_UP = 1 / 4
"""This part of a run is not judged: caches fill, and the first outage makes the allocator grow."""
JUDGED_SECONDS = 120
"""Shorter runs are all warm-up."""

_BARS = "▁▂▃▄▅▆▇█"


def resident_bytes(pid: int | str) -> int:
    """Return the resident memory of a process; 0 if it has just ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0


def descriptors() -> int:
    """Return the number of open descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


@attrs.define
class Curve:
    """The samples of one quantity over a run: memory, descriptors or files.

    Attributes:
        name: name of the quantity.
        allowed: how much it may grow between warm-up and end, by linear regression.
        unit: the value that is shown as 1.
        word: name of that unit, after a space.
        judged_seconds: shorter runs are not judged.
        points: the samples: seconds and values.
    """

    name: str
    allowed: int
    unit: int = 1 << 20
    word: str = " MiB"
    judged_seconds: float = JUDGED_SECONDS
    points: list[tuple[float, int]] = attrs.field(factory=list)

    def add(self, seconds: float, held: int) -> None:
        """Add a sample; a 0 is ignored, because it comes from a process that has ended."""
        if held:
            self.points.append((seconds, held))

    def growth(self) -> float | None:
        """Return the growth by linear regression; None if the run was too short."""
        if not self.points or self.points[-1][0] - self.points[0][0] < self.judged_seconds:
            return None
        begin = self.points[0][0] + (self.points[-1][0] - self.points[0][0]) * WARM_UP
        judged = [point for point in self.points if point[0] >= begin]
        times, held = [point[0] for point in judged], [float(point[1]) for point in judged]
        return float(statistics.linear_regression(times, held).slope) * (times[-1] - times[0])

    def shown_growth(self) -> str | None:
        """Return the growth with its sign and unit; None if the run was too short."""
        growth = self.growth()
        return None if growth is None else f"{'+' if growth >= 0 else ''}{self._shown(growth)}"

    def violations(self) -> list[str]:
        """Return a violation if it has grown too much."""
        growth = self.growth()
        if growth is None or growth <= self.allowed:
            return []
        return [f"{self.name} grew by {self._shown(growth)}, {self._shown(self.allowed)} are allowed"]

    def drawn(self, width: int = 40) -> str:
        """Return the curve as a line of blocks, with its figures."""
        if not self.points:
            return "no samples"
        held = [each for _, each in self.points]
        low, high = min(held), max(held)
        step = max(1, len(held) // width)
        means = [statistics.fmean(held[at : at + step]) for at in range(0, len(held), step)]
        bars = "".join(_BARS[int((mean - low) / max(1, high - low) * (len(_BARS) - 1))] for mean in means)
        growth = self.growth()
        slope = "too short to judge" if growth is None else f"{self._shown(growth)} of growth after warm-up"
        return (
            f"{bars} {self._shown(low)} to {self._shown(high)}, at the end {self._shown(held[-1])}; {slope}"
        )

    def _shown(self, value: float) -> str:
        return f"{value / self.unit:.1f}{self.word}"
