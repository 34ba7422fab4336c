"""Virtual time as a `splashdam.net.clock.Clock`."""

from __future__ import annotations

from trio.testing import MockClock


class VirtualClock:
    """Reads trio's ``MockClock``: whole days pass in milliseconds, and every run sees the same times.

    Give the ``MockClock`` to ``trio.run`` (pytest-trio's ``autojump_clock`` does) and this to splashdam.
    Autojump looks at one ``trio.run`` only: it jumps past threads, so tests of the blocking producer use the
    real clock.

    Args:
        mock_clock: the clock of the running loop.
        wall_start_ms: the wall clock when virtual time is 0; by default 2026-01-01T00:00:00Z.
    """

    def __init__(self, mock_clock: MockClock, wall_start_ms: int = 1_767_225_600_000) -> None:
        self._mock_clock = mock_clock
        self._wall_start_ms = wall_start_ms

    def now_ms(self) -> float:
        """Virtual milliseconds."""
        return self._mock_clock.current_time() * 1000

    def wall_ms(self) -> int:
        """Virtual milliseconds since the epoch."""
        return self._wall_start_ms + int(self.now_ms())

    def wall_ns(self) -> int:
        """Virtual nanoseconds since the epoch, in whole milliseconds."""
        return self.wall_ms() * 1_000_000
