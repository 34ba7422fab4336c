"""Clocks: monotonic milliseconds for deadlines, wall-clock milliseconds for records.

Code that needs time takes a `Clock`. In production it is a `SystemClock`, which is also passed to
``trio.run``; in tests it is `splashdam.testing.clock.VirtualClock` over trio's ``MockClock``.
"""

from __future__ import annotations

import time
from typing import Protocol

import trio


class Clock(Protocol):
    """The source of deadlines and timestamps; safe in any thread."""

    def now_ms(self) -> float:
        """Return monotonic milliseconds from an arbitrary start."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch."""
        ...

    def wall_ns(self) -> int:
        """Return nanoseconds since the epoch; records without a timestamp get this time."""
        ...


class LoopClock(trio.abc.Clock, Clock):
    """A `Clock` that ``trio.run(..., clock=clock)`` accepts as well."""


class SystemClock(LoopClock):
    """The system's clocks."""

    def start_clock(self) -> None:
        """Do nothing: the system's clock is running."""

    def current_time(self) -> float:
        """Return monotonic seconds, for trio."""
        return time.monotonic()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the seconds until ``deadline``, for trio."""
        return deadline - time.monotonic()

    def now_ms(self) -> float:
        """Return monotonic milliseconds."""
        return time.monotonic() * 1000

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    wall_ns = staticmethod(time.time_ns)  # one call per record, without a Python frame
