"""Clocks, real and virtual."""

from __future__ import annotations

import time

import trio
from trio.testing import MockClock

from splashdam.net.clock import Clock, SystemClock
from splashdam.testing.clock import VirtualClock


def test_the_system_clock_drives_trio() -> None:
    """Given to trio.run it is trio's time, and its milliseconds are the machine's."""
    clock = SystemClock()

    async def main() -> float:
        await trio.sleep(0.001)
        return trio.current_time()

    before = time.monotonic()
    inside = trio.run(main, clock=clock)
    assert before < inside < time.monotonic()
    assert before * 1000 < clock.now_ms() < time.monotonic() * 1000 + 1
    earliest_ms = time.time_ns() // 1_000_000
    assert earliest_ms <= clock.wall_ms() <= time.time_ns() // 1_000_000


async def test_the_virtual_clock_jumps(autojump_clock: MockClock) -> None:
    """An hour passes at once, on both of its faces."""
    clock: Clock = VirtualClock(autojump_clock, wall_start_ms=1_000_000)
    start_ms = clock.now_ms()
    wall_ms = clock.wall_ms()
    await trio.sleep(3600)
    assert clock.now_ms() - start_ms == 3_600_000
    assert clock.wall_ms() - wall_ms == 3_600_000
    assert wall_ms == 1_000_000 + int(start_ms)
