"""Many threads at once, on both twins, with a switch interval that shows races."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("pure", ["", "1"], ids=["compiled", "pure"])
@pytest.mark.parametrize("shape", ["few", "many"])
@pytest.mark.parametrize("records", [200, pytest.param(1_500, marks=pytest.mark.slow)])
def test_eight_threads_one_flushes_one_closes(pure: str, shape: str, records: int) -> None:
    """Counts, per-thread order and memory are exact. Without a compiler both runs are of the Python twin."""
    environment = {
        **os.environ,
        "SPLASHDAM_PURE": pure,
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(HERE.parent), str(HERE.parents[1]), os.environ.get("PYTHONPATH")])
        ),
    }
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", HERE / "stress_threads.py", shape, str(records)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert done.stdout.count("acknowledged") == 2
