"""A broker's clock that a test moves; all other clocks of the process keep running."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime

import trio

from splashdam.net.clock import LoopClock
from splashdam.net.reentrant_lock import ReentrantLock

_NS_PER_MS = 1_000_000


class SteeredClock(LoopClock):
    """The system's clocks, which any thread may move.

    ``advance`` lets time pass for the wall clock and for every deadline of the broker: sessions expire,
    transactions time out and retention deletes at once. ``set``, ``step`` and ``freeze`` change the wall
    clock alone, as an operator or NTP does: record timestamps, and everything compared with them. Clients
    have their own clocks, which keep running.
    """

    def __init__(self) -> None:
        self._guard = ReentrantLock()
        self._passed_ns = 0
        self._wall_offset_ns = 0
        self._frozen_ns: int | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    def start_clock(self) -> None:
        """Remember the loop, which must be woken when deadlines move. Called by trio as the loop starts."""
        self._token = trio.lowlevel.current_trio_token()

    def current_time(self) -> float:
        """Return monotonic seconds, for trio."""
        return time.monotonic() + self._passed_ns / 1e9

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the seconds until ``deadline``, for trio."""
        return deadline - self.current_time()

    def now_ms(self) -> float:
        """Return monotonic milliseconds."""
        return self.current_time() * 1000

    def wall_ns(self) -> int:
        """Return nanoseconds since the epoch, as steered."""
        # Read once: another thread may resume the clock.
        frozen_ns = self._frozen_ns
        return time.time_ns() + self._wall_offset_ns if frozen_ns is None else frozen_ns

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch, as steered."""
        return self.wall_ns() // _NS_PER_MS

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let time pass at once, for the wall clock, frozen or not, and for deadlines.

        Raises:
            ValueError: the time is negative; use ``step`` to move the wall clock back.
        """
        passed_ns = round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1e9)
        if passed_ns < 0:
            raise ValueError("time cannot pass backwards; step() moves the wall clock back")
        self._guard.run(self._pass, passed_ns)
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(_look_at_deadlines)

    def step(self, seconds: float) -> None:
        """Move the wall clock alone, back if negative; deadlines stay."""
        self._guard.run(self._move_wall, round(seconds * 1e9))

    def set(self, wall: datetime | int) -> None:
        """Set the wall clock to a time with a time zone, or to milliseconds since the epoch.

        Raises:
            ValueError: the time has no time zone, so it is ambiguous.
        """
        if isinstance(wall, datetime):
            if wall.tzinfo is None:
                raise ValueError("a time without a time zone; give it one, such as tzinfo=UTC")
            wall = round(wall.timestamp() * 1000)
        self._guard.run(self._set, wall * _NS_PER_MS)

    def freeze(self) -> None:
        """Stop the wall clock: every record gets the same time. Deadlines keep running."""
        self._guard.run(self._freeze)

    def resume(self) -> None:
        """Let a frozen wall clock run again from its present time."""
        self._guard.run(self._resume)

    def reset(self) -> None:
        """Set the wall clock back to the system's. Time that passed for deadlines stays passed."""
        self._guard.run(self._reset)

    # The methods below run with the guard held.

    def _pass(self, passed_ns: int) -> None:
        self._passed_ns += passed_ns
        self._move_wall(passed_ns)

    def _set(self, wall_ns: int) -> None:
        self._move_wall(wall_ns - self.wall_ns())

    def _freeze(self) -> None:
        self._frozen_ns = self.wall_ns()

    def _resume(self) -> None:
        if self._frozen_ns is not None:
            self._wall_offset_ns = self._frozen_ns - time.time_ns()
            self._frozen_ns = None

    def _reset(self) -> None:
        self._frozen_ns = None
        self._wall_offset_ns = 0

    def _move_wall(self, by_ns: int) -> None:
        if self._frozen_ns is None:
            self._wall_offset_ns += by_ns
        else:
            self._frozen_ns += by_ns


def _look_at_deadlines() -> None:
    """Do nothing: the loop reads its clock and deadlines when it wakes to call this."""
