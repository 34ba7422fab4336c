"""Environments with nothing but what is asked for, made by uv, and programs that run in them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(sys.executable).parent
"""Where `uv`, `twine` and `auditwheel` are: the dependency group `release` stands beside this Python."""

# What a developer's shell says to Python and to compilers is not there on the machine of a user.
_FOREIGN = ("CC", "CFLAGS", "LDFLAGS", "PYTHONPATH", "PYTHONHOME", "SPLASHDAM_PURE", "VIRTUAL_ENV")


class RunError(Exception):
    """A program ended with a status that is not 0; its text is what the program said."""


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
        folder: it runs in.
        more: variables of its environment, beside those of the shell that tell about no development.
        text: its standard input.
        timeout: in seconds.

    Raises:
        RunError: it ended with another status than 0.
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
    """A virtual environment without anything but what is installed into it, not even pip."""

    def __init__(self, folder: Path, python: str | Path) -> None:
        self.folder = folder.resolve()
        self.python = self.folder / "bin/python"
        run(["uv", "venv", "--quiet", "--clear", "--no-project", "--python", python, folder])

    def install(
        self, *requirements: str | Path, more: Mapping[str, str] | None = None, anew: bool = False
    ) -> None:
        """Install by uv, which keeps what it has built once, other than ``anew``."""
        kept = ["--no-cache"] if anew else []
        run(["uv", "pip", "install", "--quiet", *kept, "--python", self.python, *requirements], more=more)

    def says(self, program: str, folder: Path) -> str:
        """Run a Python program in the folder, with warnings as errors, and return what it printed."""
        return run([self.python, "-W", "error", "-c", program], folder=folder).strip()


def find_python(version: str) -> Path | None:
    """Return an interpreter of this machine; None if it has none of that version."""
    try:
        return Path(run(["sh", ROOT / "tools/find_python.sh", "--here", version]).strip())
    except RunError:
        return None
