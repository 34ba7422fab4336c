"""The steps of one awaited record: the medians, and a small run."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
from support.running.house_tree import ROOT


def test_medians_are_those_of_the_most_frequent_order() -> None:
    """A record whose steps came in another order does not count."""
    awaited = importlib.import_module("awaited")
    notes = awaited.Notes()
    for write, read in ((10_000, 20_000), (12_000, 26_000), (14_000, 22_000), (90_000, 80_000)):
        notes.records.append({awaited.CALL: 0, "read": read, "write": write, awaited.GOT: 99_000})
    assert notes.usual() == [(awaited.CALL, 0), ("write", 12), ("read", 22), (awaited.GOT, 99)]


@pytest.mark.slow
def test_a_small_run_shows_every_step_of_every_producer() -> None:
    """Blocking and asyncio, paced and tight; each table ends with the answer."""
    awaited = importlib.import_module("awaited")
    done = subprocess.run(
        [sys.executable, "benchmarks/awaited.py", "--records", "30"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for step in (awaited.CALL, *awaited.STEPS.values(), awaited.GOT):
        assert done.stdout.count(step) == 2 * len(awaited.PRODUCERS), step
