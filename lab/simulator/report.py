"""What a run did: a trace, the same for the same seed, counts of what was exercised, and violations."""

from __future__ import annotations

from collections import Counter

import trio


class RunRecord:
    """Lines, counts and violations of one run.

    Attributes:
        lines: the trace: virtual milliseconds, what, and details.
        counts: how often what was exercised.
        violations: promises that were broken; empty after a good run.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []

    def note(self, what: str, details: str = "") -> None:
        """A line of the trace."""
        self.lines.append(f"{trio.current_time() * 1000:.3f} {what} {details}".rstrip())

    def count(self, what: str, times: int = 1) -> None:
        """Something was exercised."""
        self.counts[what] += times

    def violated(self, promise: str) -> None:
        """A promise was broken; the run goes on, since one often explains the next."""
        self.violations.append(promise)
        self.lines.append(f"VIOLATION {promise}")
