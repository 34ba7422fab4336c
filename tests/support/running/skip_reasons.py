"""Says at the end of a run what it did not run: one line for each reason, with the number of tests."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

MARKS = ("slow", "spark", "spark_jvm", "browser", "kafka", "s3", "kerberos")


def pytest_configure(config: pytest.Config) -> None:
    """One count for each process; that of a worker travels to where the end is printed."""
    config.pluginmanager.register(LeftOut(config), "left-out")


class LeftOut:
    """Counts tests that the command line left out, by their marks; skipped ones are in pytest's reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._marked: Counter[str] = Counter()

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Counts the tests that ``-m`` and ``-k`` leave out; a test of several marks counts once."""
        for item in items:
            marks = [mark for mark in MARKS if item.get_closest_marker(mark)]
            self._marked[" and ".join(marks) or "no mark"] += 1

    def pytest_sessionfinish(self) -> None:
        """Each worker has collected, and left out, the same."""
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["left_out"] = dict(self._marked)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker has ended; one that died says nothing."""
        self._marked |= Counter(getattr(node, "workeroutput", {}).get("left_out", {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The lines, the largest number first."""
        reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"skipped {count:>5}: {reason}")
        for marks, count in self._marked.most_common():
            terminalreporter.write_line(f"left out {count:>4}: {marks}")


def _reason(report: Any) -> str:
    """What the test said, on one line."""
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    return " ".join(str(said).removeprefix("Skipped: ").split())
