"""Timers of all groups of a coordinator, in one queue. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import TypeAlias

TimerKey: TypeAlias = tuple[str, ...]
"""The group's id, the purpose of the timer, and for some the member's id."""

NEVER = float("inf")


class Timers:
    """Timers by key. Postponing one, which every heartbeat does, costs only a dictionary entry.

    Its entry in the heap stays where it is, and is pushed again when its old time has come.

    Attributes:
        on_earlier: called when a timer is set that is due before all others.
    """

    def __init__(self, on_earlier: Callable[[], None] = lambda: None) -> None:
        self.on_earlier = on_earlier
        self._timers: dict[TimerKey, tuple[float, Callable[[], None]]] = {}
        self._queue: list[tuple[float, int, TimerKey]] = []
        self._queued: dict[TimerKey, float] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._timers)

    @property
    def next_ms(self) -> float:
        """When to call ``step`` next; never later than the first due timer."""
        return self._queue[0][0] if self._queue else NEVER

    def set(self, key: TimerKey, at_ms: float, action: Callable[[], None]) -> None:
        """Call ``action`` at ``at_ms``; this replaces the key's earlier timer."""
        self._timers[key] = at_ms, action
        if at_ms < self._queued.get(key, NEVER):
            is_earlier = at_ms < self.next_ms
            self._enqueue(key, at_ms)
            if is_earlier:
                self.on_earlier()

    def cancel(self, key: TimerKey) -> None:
        """Cancel a timer, if it is set."""
        self._timers.pop(key, None)

    def step(self, now_ms: float, *, most: float = NEVER) -> None:
        """Call what is due, in the order of time.

        Args:
            now_ms: the time.
            most: so many actions at most; ``next_ms`` is not in the future if more are due.
        """
        called = 0
        while called < most and self._queue and self._queue[0][0] <= now_ms:
            queued_ms, _, key = heappop(self._queue)
            if self._queued.get(key) != queued_ms:
                continue  # replaced by an earlier entry
            del self._queued[key]
            if key not in self._timers:
                continue
            at_ms, action = self._timers[key]
            if at_ms > queued_ms:
                self._enqueue(key, at_ms)  # postponed; others may be due before it
            else:
                del self._timers[key]
                called += 1
                action()

    def _enqueue(self, key: TimerKey, at_ms: float) -> None:
        self._queued[key] = at_ms
        heappush(self._queue, (at_ms, next(self._numbers), key))
