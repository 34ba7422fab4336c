"""A broker's clock that a test moves, while everybody else's goes on."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime

import trio

from splashdam.net.clock import LoopClock
from splashdam.net.guard import Guard

_NS_PER_MS = 1_000_000


class SteeredClock(LoopClock):
    """The machine's clocks until somebody steers them, from any thread.

    ``advance`` lets time pass: the wall clock and every deadline of the broker, so that sessions expire,
    transactions time out and retention deletes without anybody waiting. ``set``, ``step`` and ``freeze``
    move the wall clock alone, as an operator or NTP does: the timestamps of records and what is compared
    with them. Clients have clocks of their own, which go on.
    """

    def __init__(self) -> None:
        self._guard = Guard()
        self._passed_ns = 0
        self._wall_offset_ns = 0
        self._frozen_ns: int | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    def start_clock(self) -> None:
        """Called by trio as its loop starts: the loop that has to hear when its deadlines have moved."""
        self._token = trio.lowlevel.current_trio_token()

    def current_time(self) -> float:
        """Monotonic seconds, for trio."""
        return time.monotonic() + self._passed_ns / 1e9

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Seconds until ``deadline``, for trio."""
        return deadline - self.current_time()

    def now_ms(self) -> float:
        """Monotonic milliseconds."""
        return self.current_time() * 1000

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch, as steered."""
        frozen_ns = self._frozen_ns
        return time.time_ns() + self._wall_offset_ns if frozen_ns is None else frozen_ns

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, as steered."""
        return self.wall_ns() // _NS_PER_MS

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Lets so much time pass at once, for the wall clock, frozen or not, and for deadlines.

        Raises:
            ValueError: the time is negative; ``step`` moves the wall clock back.
        """
        passed_ns = round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1e9)
        if passed_ns < 0:
            raise ValueError("time does not pass backwards; step() moves the wall clock back")
        self._guard.run(self._pass, passed_ns)
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(_look_at_deadlines)

    def step(self, seconds: float) -> None:
        """Moves the wall clock alone, back where negative; deadlines stay."""
        self._guard.run(self._move_wall, round(seconds * 1e9))

    def set(self, wall: datetime | int) -> None:
        """Sets the wall clock to a time with a time zone, or to milliseconds since the epoch.

        Raises:
            ValueError: the time has no time zone, so that nobody knows which it is.
        """
        if isinstance(wall, datetime):
            if wall.tzinfo is None:
                raise ValueError("a time without a time zone; give it one, such as tzinfo=UTC")
            wall = round(wall.timestamp() * 1000)
        self._guard.run(self._set, wall * _NS_PER_MS)

    def freeze(self) -> None:
        """Stops the wall clock where it is: every record gets the same time. Deadlines go on."""
        self._guard.run(self._freeze)

    def resume(self) -> None:
        """Lets a frozen wall clock go on from where it stands."""
        self._guard.run(self._resume)

    def reset(self) -> None:
        """Takes the wall clock back to the machine's. What has passed for deadlines has passed."""
        self._guard.run(self._reset)

    # What follows runs in the guard.

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
    """Nothing to do: that the loop turns is enough, since it reads its clock then."""
