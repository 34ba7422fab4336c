"""Builds the archive with the workers' environment, as docs/how-to/pipeline-cluster.md describes.

The archive is a virtual environment, packed by venv-pack. It has no Spark, because every node of a cluster
has it. It stays in ``build/pipeline-cluster``, and is built again when a source file is newer.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from lab import ROOT

NAME = "job"
"""The archive's name in ``spark.archives``: the folder in the working directory of each executor."""
PYTHON = f"./{NAME}/bin/python"
_HOME = ROOT / "build" / "pipeline-cluster"
_NEEDS = ("pyarrow>=18", "venv-pack")
_EXTRAS = "[cli,compression]"
_SOURCES = ("*.py", "*.pyx", "*.pxi", "pyproject.toml", "setup.py")


def packed(say: Callable[[str], None]) -> Path:
    """Return the archive, built if it is missing or older than the sources.

    Args:
        say: called with a line before each long step.

    Raises:
        CalledProcessError: pip or venv-pack failed; its output is on standard error.
    """
    archive = _HOME / f"{NAME}.tar.gz"
    if archive.exists() and archive.stat().st_mtime > _newest_source():
        return archive
    environment = _HOME / NAME
    python = environment / "bin" / "python"
    if not python.exists():
        say("making an environment")
        _run(sys.executable, "-m", "venv", str(environment))
    say("building a wheel and installing it")
    with tempfile.TemporaryDirectory() as wheels:
        _run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", wheels, str(ROOT))
        wheel = next(Path(wheels).glob("splashdam-*.whl"))
        _run(str(python), "-m", "pip", "install", "-q", f"{wheel}{_EXTRAS}", *_NEEDS)
        _run(str(python), "-m", "pip", "install", "-q", "--force-reinstall", "--no-deps", str(wheel))
    say("packing the environment")
    _run(str(environment / "bin" / "venv-pack"), "--force", "-q", "-p", str(environment), "-o", str(archive))
    return archive


def unpack(archive: Path, folder: Path) -> None:
    """Unpack the archive for the driver: it plans Python data sources with the executors' Python."""
    with tarfile.open(archive) as packed_files:
        packed_files.extractall(folder / NAME, filter="fully_trusted")


def _newest_source() -> float:
    command = ["git", "ls-files", "-z", "--", *_SOURCES, ":!tests", ":!lab", ":!benchmarks", ":!examples"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return max(
        (ROOT / name).stat().st_mtime for name in listed.split("\0") if name and (ROOT / name).exists()
    )


def _run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True)
