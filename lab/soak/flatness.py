"""Samples what must not grow, in two processes and a folder; judges it after the first quarter of a run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from lab.memory import Curve, resident_bytes

MIB = 1 << 20
JUDGED_SECONDS = 1200
"""The disk of a shorter run is still filling when its first quarter is over."""


def open_descriptors(pid: int | str) -> int:
    """Return the number of a process's open descriptors; 0 if it has just ended."""
    with suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/fd"))
    return 0


def files_in(folder: Path) -> tuple[int, int]:
    """Return the number of files below a folder, and the bytes that they take on the disk."""
    count = size = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # it has just been removed
                size += os.stat(os.path.join(where, name)).st_blocks * 512
                count += 1
    return count, size


class Flatness:
    """The samples of a run.

    Args:
        broker: process id of the cluster.
        data: its directory.
        now: seconds on a clock.
    """

    def __init__(self, broker: int, data: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._broker, self._data, self._now = broker, data, now
        self._began = now()
        allowed = {"memory of the brokers": 24 * MIB, "memory of the clients": 24 * MIB, "disk": 24 * MIB}
        numbers = {"descriptors of the brokers": 60, "descriptors of the clients": 30, "files": 120}
        curves = [Curve(name, most, judged_seconds=JUDGED_SECONDS) for name, most in allowed.items()]
        curves += [Curve(name, most, 1, "", JUDGED_SECONDS) for name, most in numbers.items()]
        self.curves: Mapping[str, Curve] = {curve.name: curve for curve in curves}
        """By name. The trend after the first quarter counts, not a single peak."""

    def sample(self) -> None:
        """Take one sample of each quantity."""
        files, disk = files_in(self._data)
        at = self._now() - self._began
        seen = {
            "memory of the brokers": resident_bytes(self._broker),
            "memory of the clients": resident_bytes("self"),
            "descriptors of the brokers": open_descriptors(self._broker),
            "descriptors of the clients": open_descriptors("self"),
            "files": files,
            "disk": disk,
        }
        for name, value in seen.items():
            self.curves[name].add(at, value)

    def violations(self) -> list[str]:
        """Return a violation for each quantity that has grown too much."""
        return [text for curve in self.curves.values() for text in curve.violations()]

    def verdict(self) -> str:
        """Return a line that says whether the run was flat, with the growth of each quantity."""
        growths = {name: curve.shown_growth() for name, curve in self.curves.items()}
        if None in growths.values():
            return "too short to judge what grows"
        word = "not flat" if self.violations() else "flat"
        each = ", ".join(f"{name} {growth}" for name, growth in growths.items())
        return f"{word} after the first quarter ({each})"
