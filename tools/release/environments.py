"""Makes virtual environments with uv that have only the given requirements, and runs programs in them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(sys.executable).parent
"""The folder of `uv`, `twine` and `auditwheel`: the group `release` is installed beside this Python."""

# Variables of a developer's shell for Python and compilers; a user's machine does not have them.
_FOREIGN = ("CC", "CFLAGS", "LDFLAGS", "PYTHONPATH", "PYTHONHOME", "SPLASHDAM_PURE", "VIRTUAL_ENV")


class RunError(Exception):
    """A program ended with a status other than 0; the message has its output."""


def run(
    command: Sequence[str | Path],
    *,
    folder: Path = ROOT,
    more: Mapping[str, str] | None = None,
    text: str | None = None,
    timeout: float = 3000,
) -> str:
    """Run a program to its end and return what it wrote to standard output.

    Args:
        command: the program and its arguments; a tool's name is looked up in `TOOLS` first.
        folder: its working directory.
        more: further variables of its environment, beside the shell's without `_FOREIGN`.
        text: its standard input.
        timeout: in seconds.

    Raises:
        RunError: the program ended with a status other than 0.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    environment = {**inherited, "PATH": os.pathsep.join([str(TOOLS), os.environ["PATH"]]), **(more or {})}
    program = shutil.which(command[0], path=environment["PATH"]) or str(command[0])
    done = subprocess.run(
        [program, *map(str, command[1:])],
        cwd=folder,
        env=environment,
        input=text,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise RunError(f"{' '.join(map(str, command))}\nended with status {done.returncode}:\n{said}")
    return done.stdout


class Environment:
    """A virtual environment that has only what `install` puts into it, not even pip."""

    def __init__(self, folder: Path, python: str | Path) -> None:
        self.folder = folder.resolve()
        self.python = self.folder / "bin/python"
        run(["uv", "venv", "--quiet", "--clear", "--no-project", "--python", python, folder])

    def install(
        self, *requirements: str | Path, more: Mapping[str, str] | None = None, anew: bool = False
    ) -> None:
        """Install with uv; ``anew`` builds again what uv's cache has from an earlier build."""
        kept = ["--no-cache"] if anew else []
        run(["uv", "pip", "install", "--quiet", *kept, "--python", self.python, *requirements], more=more)

    def says(self, program: str, folder: Path) -> str:
        """Run a Python program in the folder, with warnings as errors, and return what it printed."""
        return run([self.python, "-W", "error", "-c", program], folder=folder).strip()


def find_python(version: str) -> Path | None:
    """Return an interpreter of this version; None if the machine has none."""
    try:
        return Path(run(["sh", ROOT / "tools/find_python.sh", "--here", version]).strip())
    except RunError:
        return None
