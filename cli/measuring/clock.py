"""The cost of a measured part: time, CPU time and memory of this process; and the pace of latency runs."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from splashdam.cli.measuring.task import Task

Measurement: TypeAlias = dict[str, Any]
"""Figures by name; all are plain numbers, for JSON."""

WARM_UP_RECORDS = 100
"""The first records of a latency run, which do not count: threads start, and caches fill."""

DELIVERY_SECONDS = 60
"""How long a client may take to deliver its records."""


def cpu_seconds() -> float:
    """Return the CPU time of all threads of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_rss_bytes() -> int:
    """Return the highest resident size of this process.

    On Linux from /proc: ``ru_maxrss`` keeps the size of the parent that started this process by fork and
    exec.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Clock:
    """Measures from the moment it is made."""

    def __init__(self) -> None:
        self.cpu, self.wall = cpu_seconds(), time.perf_counter()

    def measured(self) -> Measurement:
        """Return seconds, CPU seconds and peak memory until now."""
        seconds, cpu = time.perf_counter() - self.wall, cpu_seconds() - self.cpu
        return {"seconds": seconds, "cpu_seconds": cpu, "peak_rss_bytes": peak_rss_bytes()}


def due_times(task: Task) -> Iterator[float]:
    """Return when each record of a latency run is due, by ``perf_counter``; without a pace: at once."""
    start = time.perf_counter()
    period = 1 / task.per_second if task.per_second else 0.0
    return (start + number * period for number in range(task.count))


def sleep_until(due: float) -> None:
    remaining = due - time.perf_counter()
    if remaining > 0:
        time.sleep(remaining)


def latency_figures(seconds: Sequence[float]) -> Measurement:
    """Return median and 99th percentile, in milliseconds, without the warm-up."""
    ordered = sorted(seconds[WARM_UP_RECORDS:])
    return {"p50_ms": percentile(ordered, 0.5) * 1e3, "p99_ms": percentile(ordered, 0.99) * 1e3}


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


class Acks:
    """Counts deliveries and collects their latencies; callbacks of the clients update it."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds: list[float] = []

    def wait_for(self, count: int) -> None:
        """Wait until another thread has counted so many deliveries.

        Raises:
            TimeoutError: there are fewer after `DELIVERY_SECONDS`.
        """
        give_up_at = time.perf_counter() + DELIVERY_SECONDS
        while self.count < count:
            if time.perf_counter() > give_up_at:
                raise TimeoutError(f"{self.count:,} of {count:,} records were acknowledged")
            time.sleep(0.0005)
