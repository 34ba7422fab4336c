"""Counting failures, and how long to wait after each (KIP-580)."""

from __future__ import annotations

from collections.abc import Callable

from splashdam.accumulator.backoff import exponential_ms


class Backoff:
    """Exponential waits with jitter, as ``accumulator.backoff`` has them.

    Args:
        base_ms: the wait after the first failure, on average.
        max_ms: upper limit.
        random: answers numbers from 0 to 1.
    """

    def __init__(self, base_ms: float, max_ms: float, random: Callable[[], float]) -> None:
        self._base_ms = base_ms
        self._max_ms = max_ms
        self._random = random
        self.failures = 0

    def next_ms(self) -> float:
        """Counts one more failure and says how long to wait."""
        self.failures += 1
        return exponential_ms(self._base_ms, self._max_ms, self._random, self.failures)

    def reset(self) -> None:
        """It worked: the next failure is the first again."""
        self.failures = 0
