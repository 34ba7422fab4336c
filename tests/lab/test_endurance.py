"""Some seconds of `make endurance`: real processes, a few kills, everything there once."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.running.house_tree import ROOT

from lab import endurance
from lab.producers.process import Producers


class FakeBroker:
    """Notes whether it runs."""

    address = "localhost:9"

    def __init__(self, *_: object) -> None:
        self.runs = False

    def start(self) -> None:
        self.runs = True

    def kill(self) -> None:
        self.runs = False


def test_a_broker_stayed_whose_producers_did_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was started in front of the block that kills it."""
    broker = FakeBroker()

    def refuse(*_: object, **__: object) -> Any:
        assert broker.runs
        raise OSError("no more processes")

    monkeypatch.setattr(endurance, "Broker", lambda *_: broker)
    monkeypatch.setattr(endurance, "Producers", refuse)
    with pytest.raises(OSError, match="no more processes"):
        endurance.endurance(Namespace(rate=1, seed=0), tmp_path, Console())
    assert not broker.runs


def test_killed_producers_left_their_pipes_open(tmp_path: Path) -> None:
    """Two descriptors, of which endurance itself counts none."""
    producers = Producers("localhost:9", tmp_path, rate=1, seed=0)
    producers.kill()
    producers.kill()  # as after a `finish` that has waited for too long
    process = producers._process
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdin.closed
    assert process.stdout.closed


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_some_seconds_of_kills() -> None:
    """No promise is broken."""
    command = [sys.executable, "-m", "lab.endurance", "--minutes", "0.2", "--pause", "1.5", "--rate", "600"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "SIGKILL of the broker" in run.stdout
    assert "endurance: 0 promises broken" in run.stdout
