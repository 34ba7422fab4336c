"""What is to happen when: one queue for all groups of a coordinator. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import TypeAlias

TimerKey: TypeAlias = tuple[str, ...]
"""Whose timer it is: the group's id, what it is for, and where need be the member's id."""

NEVER = float("inf")


class Timers:
    """Timers by key. To put one off, which heartbeats do all the time, costs a dictionary's entry.

    Its entry in the queue stays where it is, and is queued anew once its time has come.

    Attributes:
        on_earlier: called when something is due sooner than anything was before.
    """

    def __init__(self, on_earlier: Callable[[], None] = lambda: None) -> None:
        self.on_earlier = on_earlier
        self._timers: dict[TimerKey, tuple[float, Callable[[], None]]] = {}
        self._queue: list[tuple[float, int, TimerKey]] = []
        self._queued: dict[TimerKey, float] = {}
        self._numbers = count()

    def __len__(self) -> int:
        """How many are set."""
        return len(self._timers)

    @property
    def next_ms(self) -> float:
        """When to look next; never later than what is due first."""
        return self._queue[0][0] if self._queue else NEVER

    def set(self, key: TimerKey, at_ms: float, action: Callable[[], None]) -> None:
        """Calls ``action`` once it is ``at_ms``, in place of what this key was set to before."""
        self._timers[key] = at_ms, action
        if at_ms < self._queued.get(key, NEVER):
            is_earlier = at_ms < self.next_ms
            self._enqueue(key, at_ms)
            if is_earlier:
                self.on_earlier()

    def cancel(self, key: TimerKey) -> None:
        """Forgets a timer, if it is set."""
        self._timers.pop(key, None)

    def step(self, now_ms: float) -> None:
        """Calls what is due, in the order of time."""
        while self._queue and self._queue[0][0] <= now_ms:
            queued_ms, _, key = heappop(self._queue)
            if self._queued.get(key) != queued_ms:
                continue  # an earlier entry took its place
            del self._queued[key]
            if key not in self._timers:
                continue
            at_ms, action = self._timers[key]
            if at_ms > queued_ms:
                self._enqueue(key, at_ms)  # others may come before it, be it due or not
            else:
                del self._timers[key]
                action()

    def _enqueue(self, key: TimerKey, at_ms: float) -> None:
        self._queued[key] = at_ms
        heappush(self._queue, (at_ms, next(self._numbers), key))
