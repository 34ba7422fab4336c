"""`make demo` sets up its environment with one line, and hides nothing that goes wrong."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support.running.house_tree import ROOT


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("status", [0, 1])
def test_setup_speaks_only_when_it_fails(tmp_path: Path, status: int) -> None:
    """Warnings of a build that succeeds are not shown; those of one that fails are, and it stays undone."""
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\necho BuildBackendWarning >&2\nexit {status}\n")
    python.chmod(0o755)
    stamp = tmp_path / "venv" / ".demo"
    command = ["make", "--no-print-directory", f"VENV={tmp_path / 'venv'}", str(stamp)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.stdout == f"setting up {tmp_path / 'venv'} (the first time takes a minute) …\n"
    assert stamp.exists() is (status == 0)
    assert (done.returncode == 0) is (status == 0)
    assert ("BuildBackendWarning" in done.stderr) is (status != 0)
