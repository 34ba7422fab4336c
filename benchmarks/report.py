"""The figures of a comparison as tables: medians, the range over the rounds, ratios round by round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

Run = dict[str, Any]
"""One measurement: client, size, mode, round, count, seconds, cpu_seconds, peak_rss_bytes, batches, …"""

OURS = "splashdam"


def rate(run: Run) -> float:
    return float(run["count"] / run["seconds"])


def cpu_per_million(run: Run) -> float:
    return float(run["cpu_seconds"] / run["count"] * 1e6)


def figure(values: Iterable[float], show: Callable[[float], str]) -> str:
    """`median (min-max)`; one value stands alone."""
    ordered = sorted(values)
    middle = show(statistics.median(ordered))
    return middle if len(ordered) == 1 else f"{middle} ({show(ordered[0])}-{show(ordered[-1])})"


def median(values: Iterable[float], show: Callable[[float], str]) -> str:
    return show(statistics.median(values))


def thousands(value: float) -> str:
    return f"{value / 1e3:,.0f}k"


def ratios(runs: Sequence[Run], client: str) -> list[float]:
    """Our rate over the client's, for each round in which both ran."""
    ours = {run["round"]: rate(run) for run in runs if run["client"] == OURS}
    theirs = {run["round"]: rate(run) for run in runs if run["client"] == client}
    return [ours[number] / theirs[number] for number in sorted(ours.keys() & theirs.keys())]


def table(runs: Sequence[Run], title: str) -> Table:
    """One table for one size and one mode, a row for each client in the order of its first run."""
    made = Table(title=title, title_justify="left")
    made.add_column("client")
    for name in ("records/s", "MB/s", "CPU s per million", "RSS MB", "records/batch", f"{OURS} is"):
        made.add_column(name, justify="right")
    for client in dict.fromkeys(run["client"] for run in runs):
        mine = [run for run in runs if run["client"] == client]
        times = [] if client == OURS else ratios(runs, client)
        made.add_row(
            f"{client} {mine[0]['version']}",
            figure(map(rate, mine), thousands),
            median((rate(run) * run["size"] / 1e6 for run in mine), "{:.1f}".format),
            figure(map(cpu_per_million, mine), "{:.2f}".format),
            median((run["peak_rss_bytes"] / 1e6 for run in mine), "{:.0f}".format),
            median((run["count"] / run["batches"] for run in mine), "{:,.0f}".format),
            figure(times, "{:.1f}x".format) if times else "",
        )
    return made


def print_report(runs: Sequence[Run], console: Console) -> None:
    """All tables, one for each size and mode measured."""
    for size, mode in dict.fromkeys((run["size"], run["mode"]) for run in runs):
        chosen = [run for run in runs if (run["size"], run["mode"]) == (size, mode)]
        console.print(table(chosen, f"{size:,} B values, {mode}"))
