"""`tools/sanitize.py`: what it says before it compiles for minutes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.running.house_tree import ROOT


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--help"], 0, "usage: python tools/sanitize.py [-h] [TESTS "),
        (["tests/nope"], 2, "error: tests/nope: there is no such test"),
        (["tests/record", "-x", "tests/nope.py::test_it"], 2, "error: tests/nope.py::test_it: there is no"),
    ],
)
def test_a_question_compiled_first(arguments: list[str], status: int, said: str) -> None:
    """So did a path that is not there, of which pytest then said so."""
    command = [sys.executable, str(ROOT / "tools" / "sanitize.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status
    assert said in done.stdout + done.stderr
    assert "+ " not in done.stdout
