"""``make soak``: what counts as flat, and some seconds of it."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from support.running.house_tree import ROOT

from lab.soak import flatness
from lab.soak.flatness import Flatness

MIB = 1 << 20


def sampled(monkeypatch: pytest.MonkeyPatch, disk_bytes_per_sample: int) -> Flatness:
    """An hour, a sample a minute; the disk fills during the first quarter, and by so much in all of it."""
    clock, samples = count(0, 60), count()
    monkeypatch.setattr(flatness, "resident_bytes", lambda _: 50 * MIB)
    monkeypatch.setattr(flatness, "open_descriptors", lambda _: 40)

    def files_in(_: Path) -> tuple[int, int]:
        number = next(samples)
        return 200, min(number, 15) * MIB + number * disk_bytes_per_sample

    monkeypatch.setattr(flatness, "files_in", files_in)
    found = Flatness(1, Path("data"), lambda: next(clock))
    for _ in range(60):
        found.sample()
    return found


def test_what_fills_in_the_first_quarter_is_flat(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small disk is full soon; the last line gives each trend."""
    found = sampled(monkeypatch, 0)
    assert found.violations() == []
    assert found.verdict().startswith("flat after the first quarter (memory of the brokers +0.0 MiB, ")


def test_what_grows_for_ever_is_not_flat(monkeypatch: pytest.MonkeyPatch) -> None:
    """A MiB a minute is 45 MiB more than there were after the first quarter."""
    found = sampled(monkeypatch, MIB)
    assert [text.partition(" by ")[0] for text in found.violations()] == ["disk grew"]
    assert found.verdict().startswith("not flat after the first quarter")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_some_seconds_of_soak() -> None:
    """No promise is broken, and the last line says that this was too short to judge what grows."""
    command = [sys.executable, "-m", "lab.soak", "--hours", "0.006", "--pause", "6"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    last = run.stdout.splitlines()[-1]
    assert last.startswith("soak: too short to judge what grows, ")
    assert "0 promises broken" in last
