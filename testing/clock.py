"""Virtual time as a `splashdam.net.clock.Clock`."""

from __future__ import annotations

from trio.testing import MockClock


class VirtualClock:
    """Read trio's ``MockClock``: days pass in milliseconds, and every run sees the same times.

    Give the ``MockClock`` to ``trio.run`` (pytest-trio's ``autojump_clock`` does) and this clock to
    splashdam. Autojump knows its own ``trio.run`` only and does not wait for threads, so tests of the
    blocking producer use the real clock.

    Args:
        mock_clock: the clock of the running loop.
        wall_start_ms: the wall clock at virtual time 0; by default 2026-01-01T00:00:00Z.
    """

    def __init__(self, mock_clock: MockClock, wall_start_ms: int = 1_767_225_600_000) -> None:
        self._mock_clock = mock_clock
        self._wall_start_ms = wall_start_ms

    def now_ms(self) -> float:
        """Return virtual milliseconds."""
        return self._mock_clock.current_time() * 1000

    def wall_ms(self) -> int:
        """Return virtual milliseconds since the epoch."""
        return self._wall_start_ms + int(self.now_ms())

    def wall_ns(self) -> int:
        """Return virtual nanoseconds since the epoch, in whole milliseconds."""
        return self.wall_ms() * 1_000_000
