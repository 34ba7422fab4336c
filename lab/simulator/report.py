"""The record of a run: its trace, which is the same for the same seed, counts, and violations."""

from __future__ import annotations

from collections import Counter

import trio


class RunRecord:
    """Trace, counts and violations of one run.

    Attributes:
        lines: the trace: virtual milliseconds, the event, and details.
        counts: how often each thing was exercised.
        violations: promises that were broken; empty after a good run.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []

    def note(self, what: str, details: str = "") -> None:
        """Add a line to the trace."""
        self.lines.append(f"{trio.current_time() * 1000:.3f} {what} {details}".rstrip())

    def count(self, what: str, times: int = 1) -> None:
        """Count something that was exercised."""
        self.counts[what] += times

    def violated(self, promise: str) -> None:
        """Note a broken promise. The run goes on, because one violation often explains the next."""
        self.violations.append(promise)
        self.lines.append(f"VIOLATION {promise}")
