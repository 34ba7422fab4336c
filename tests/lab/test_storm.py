"""Some seconds of `make storm`: three brokers with files and sockets, kills, moves, delays."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.running.house_tree import ROOT


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_some_seconds_of_storm() -> None:
    """No promise is broken: what all acknowledged is there once, whoever leads."""
    command = [sys.executable, "-m", "lab.storm", "--minutes", "0.1", "--pause", "0.7", "--rate", "500"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "records found, read_committed" in run.stdout
    assert "storm: 0 promises broken" in run.stdout
