"""Exponential backoff with jitter (KIP-580)."""

from __future__ import annotations

from collections.abc import Callable

_MOST_DOUBLINGS = 30  # far above any maximum; more would overflow a float after a thousand failures


def exponential_ms(base_ms: float, max_ms: float, random: Callable[[], float], failures: int) -> float:
    """Return the wait after a number of failures: ``min(max_ms, base_ms × 2^(failures-1) × U(0.8, 1.2))``.

    Args:
        base_ms: the wait after the first failure, on average.
        max_ms: upper limit.
        random: returns numbers from 0 to 1.
        failures: number of failures, the last one included.
    """
    factor = 0.8 + 0.4 * random()
    return min(max_ms, base_ms * 2.0 ** min(failures - 1, _MOST_DOUBLINGS) * factor)


class Backoff:
    """Counts consecutive failures and returns the wait after each.

    Args:
        base_ms: the wait after the first failure, on average.
        max_ms: upper limit.
        random: returns numbers from 0 to 1.
    """

    def __init__(self, base_ms: float, max_ms: float, random: Callable[[], float]) -> None:
        self._base_ms = base_ms
        self._max_ms = max_ms
        self._random = random
        self.failures = 0

    def next_ms(self) -> float:
        """Count a failure and return the wait in ms."""
        self.failures += 1
        return exponential_ms(self._base_ms, self._max_ms, self._random, self.failures)

    def reset(self) -> None:
        """Forget the failures, after a success."""
        self.failures = 0
