"""The one clock: monotonic milliseconds for deadlines, wall milliseconds for records.

Every room that needs time takes a `Clock`. In production it is a `SystemClock`, which is also given to
``trio.run``; in tests it is `splashdam.testing.clock.VirtualClock` over trio's ``MockClock``.
"""

from __future__ import annotations

import time
from typing import Protocol

import trio


class Clock(Protocol):
    """What deadlines and timestamps are read from; any thread may ask."""

    def now_ms(self) -> float:
        """Monotonic milliseconds from an arbitrary start."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch; what records are stamped from."""
        ...


class LoopClock(trio.abc.Clock, Clock):
    """A `Clock` by which ``trio.run(..., clock=clock)`` runs a loop, too."""


class SystemClock(LoopClock):
    """The machine's clocks, for ``trio.run(..., clock=clock)`` and for everything that takes a `Clock`."""

    def start_clock(self) -> None:
        """Nothing to start: the machine's clock runs."""

    def current_time(self) -> float:
        """Monotonic seconds, for trio."""
        return time.monotonic()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Seconds until ``deadline``, for trio."""
        return deadline - time.monotonic()

    def now_ms(self) -> float:
        """Monotonic milliseconds."""
        return time.monotonic() * 1000

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    wall_ns = staticmethod(time.time_ns)  # one per record: the kernel calls it without a frame of Python
