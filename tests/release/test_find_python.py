"""`tools/find_python.sh` takes what runs and is of the version that was asked for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.running.house_tree import ROOT

VERSION = "%d.%d" % sys.version_info[:2]  # noqa: UP031 (a slice has as many parts as the text has places)


def find(home: Path, version: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs it on a machine that has the tools of a shell and what the test puts into `bin`."""
    for tool in ("sh", "dirname"):
        found = shutil.which(tool)
        assert found is not None
        (home / "bin").mkdir(exist_ok=True)
        (home / "bin" / tool).symlink_to(found)
    return subprocess.run(
        ["sh", ROOT / "tools/find_python.sh", *options, version],
        env={"PATH": str(home / "bin"), "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )


def interpreter(path: Path) -> Path:
    """This Python under another name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return path


def test_a_shim_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    """pyenv leaves names of all its versions on the path; the interpreter is among its versions."""
    shim = interpreter(tmp_path / f"bin/python{VERSION}")
    shim.write_text("#!/bin/sh\nexit 127\n")
    own = interpreter(tmp_path / f".pyenv/versions/{VERSION}.9/bin/python3")
    assert find(tmp_path, VERSION).stdout.strip() == str(own)


def test_the_path_comes_first(tmp_path: Path) -> None:
    """What a shell would start."""
    own = interpreter(tmp_path / f"bin/python{VERSION}")
    interpreter(tmp_path / f".pyenv/versions/{VERSION}.9/bin/python3")
    assert find(tmp_path, VERSION).stdout.strip() == str(own)


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    """If it runs."""
    assert find(tmp_path, sys.executable).stdout.strip() == sys.executable


@pytest.mark.parametrize("version", ["3.99", "/no/python"])
def test_what_is_not_here_is_said(tmp_path: Path, version: str) -> None:
    """A name alone proves nothing: the interpreter says its version itself."""
    interpreter(tmp_path / "bin/python3.99")
    done = find(tmp_path, version, "--here")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"no Python {version} that runs" in done.stderr
