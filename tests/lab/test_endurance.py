"""Some seconds of `make endurance`: real processes, a few kills, everything there once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.running.house_tree import ROOT


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
