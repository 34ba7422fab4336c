"""Figures of several rounds: medians, ranges, and ratios for each round."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import attrs

from splashdam.cli.measuring.scenarios import Kind
from splashdam.cli.measuring.turns import Run


@attrs.frozen
class Figure:
    """One kind of figure, and how it is printed.

    Attributes:
        name: its key in a run.
        title: heading of its column.
        pattern: its format.
        unit: printed after it outside of tables.
        divisor: divides it before it is printed.
        smaller_is_better: for times and memory.
        ranged: whether its column shows the range over the rounds.
    """

    name: str
    title: str
    pattern: str = "{:,.0f}"
    unit: str = ""
    divisor: float = 1.0
    smaller_is_better: bool = False
    ranged: bool = False

    def written(self, value: float, *, unit: bool = False) -> str:
        text = self.pattern.format(value / self.divisor)
        return f"{text} {self.unit}".strip() if unit else text


RATE = Figure("records_per_second", "records/s", "{:,.0f}k", "records/s", 1e3, ranged=True)
FEW = Figure("records_per_second", "records/s", "{:,.0f}", "records/s", ranged=True)
"""The rate in whole records instead of thousands: a network's delay makes it small."""
CPU = Figure("cpu_seconds_per_million", "CPU s/M", "{:.2f}", "s", smaller_is_better=True, ranged=True)
CPU_SHARE = Figure("cpu_percent", "CPU %", "{:.0f}", "%", smaller_is_better=True)
MEMORY = Figure("peak_rss_bytes", "peak MB", "{:,.0f}", "MB", 1e6, smaller_is_better=True)
BYTES = Figure("megabytes_per_second", "MB/s", "{:,.1f}", "MB/s")
BATCH = Figure("records_per_batch", "records/batch")
P50 = Figure("p50_ms", "p50 ms", "{:.3f}", "ms", smaller_is_better=True, ranged=True)
P99 = Figure("p99_ms", "p99 ms", "{:.2f}", "ms", smaller_is_better=True, ranged=True)
IMPORT = Figure("import_ms", "import ms", "{:,.0f}", "ms", smaller_is_better=True, ranged=True)
FIRST_ACK = Figure(
    "first_ack_ms", "to the first ack ms", "{:,.0f}", "ms", smaller_is_better=True, ranged=True
)
REQUESTS = Figure("requests_per_second", "requests/s", "{:,.0f}", "requests/s", ranged=True)
VOLUME = Figure("volume_per_second", "MB/s", "{:,.0f}", "MB/s", ranged=True)
OPENED = Figure("opened_seconds", "open after s", "{:.2f}", "s", smaller_is_better=True, ranged=True)

COLUMNS: dict[Kind, tuple[Figure, ...]] = {
    "throughput": (RATE, BYTES, CPU, MEMORY, BATCH),
    "latency": (P50, P99, CPU_SHARE, MEMORY),
    "distance": (FEW, CPU_SHARE, MEMORY, BATCH),
    "cold start": (FIRST_ACK, IMPORT),
    "machine": (REQUESTS, VOLUME, OPENED, P50, P99, MEMORY),
}
"""Columns of the tables of each kind; ratios are those of the first figure."""


@attrs.frozen
class Spread:
    """A median and its range."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    def written(self, figure: Figure) -> str:
        """Return ``median (low-high)``, or the median alone if all values are equal."""
        middle = figure.written(self.median)
        if not figure.ranged or self.low == self.high:
            return middle
        return f"{middle} ({figure.written(self.low)}-{figure.written(self.high)})"


TIMES = Figure("times", "times", "{:.2f}x", "", ranged=True)
"""The format of a ratio."""


@attrs.frozen
class Results:
    """All runs of a comparison."""

    runs: Sequence[Run]

    def of(self, scenario: str, label: str, figure: Figure) -> dict[int, float]:
        """Return the figure by round; rounds that did not measure it are missing."""
        return {
            run["round"]: float(run[figure.name])
            for run in self.runs
            if run["scenario"] == scenario and run["label"] == label and figure.name in run
        }

    def spread(self, scenario: str, label: str, figure: Figure) -> Spread | None:
        values = list(self.of(scenario, label, figure).values())
        return Spread.of(values) if values else None

    def ratios(self, scenario: str, label: str, other: str, figure: Figure) -> list[float]:
        """Return how many times better one was than the other, for each round that has both.

        A slow moment of the machine slows both clients of a round, so rounds are compared, not medians.
        """
        mine, theirs = self.of(scenario, label, figure), self.of(scenario, other, figure)
        rounds = sorted(mine.keys() & theirs.keys())
        if figure.smaller_is_better:
            return [theirs[number] / mine[number] for number in rounds]
        return [mine[number] / theirs[number] for number in rounds]
