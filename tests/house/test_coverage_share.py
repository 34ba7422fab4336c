"""The figure of `make coverage`: what the everyday suite runs of all that tests run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.running.coverage_share import covered, main

SOURCE = "import sys\nif len(sys.argv) > 1:\n    print(1)\n    print(2)\n"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Two runs of a program with one branch; a pipeline's, and a module that is gone by now, do not count."""
    (tmp_path / "pyproject.toml").write_text("[tool.coverage.run]\nbranch = true\n")
    (tmp_path / "pipeline").mkdir()
    for name in ("program.py", "pipeline/job.py"):
        (tmp_path / name).write_text(SOURCE)
    for file, arguments in (("test", ["program.py"]), ("rest", ["program.py", "more"])):
        run(tmp_path, "run", f"--data-file={file}", *arguments)
    run(tmp_path, "run", "--append", "--data-file=rest", "pipeline/job.py")
    gone = tmp_path.with_name(f"{tmp_path.name}-gone.py")
    gone.write_text(SOURCE)
    run(tmp_path, "run", "--append", "--data-file=rest", str(gone))
    gone.unlink()
    return tmp_path


def run(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "coverage", *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=500)


def test_both_figures_are_printed(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four lines and two branches; the everyday run leaves two lines and a branch to the other."""
    monkeypatch.chdir(recorded)
    assert covered(["test"], recorded) == (3, 6)
    assert covered(["test", "rest"], recorded) == (6, 6)
    assert main(["test", "rest"], recorded) == 1
    assert "make test runs 50.00% of what make test-all runs" in capsys.readouterr().out
    assert main(["rest", "rest"], recorded) == 0
