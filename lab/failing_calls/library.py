"""Compiles the library, and sets in environment variables which call of a process fails, and how."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Literal, NamedTuple

import attrs

SOURCE = Path(__file__).with_name("failing_calls.c")
WRITES = "(p?writev?(64)?(2|v2)?|sendfile(64)?|copy_file_range):.*"
"""Pattern for the calls that can be short: those that write data."""


class NoLibraryError(Exception):
    """The library cannot be compiled here; the text says why."""


@attrs.frozen
class Failure:
    """The calls that fail.

    Attributes:
        kind: "EIO", "ENOSPC", "short" (a write takes its first bytes only) or "kill" (SIGKILL before the
            call; in a write, behind its first bytes).
        at: the number of the call, from 1 on.
        times: how many calls fail from there on; None for all.
        match: an extended regular expression for the whole of a call's ``subject``; only calls that match are
            counted. Without one every call is counted.
    """

    kind: Literal["EIO", "ENOSPC", "short", "kill"]
    at: int
    times: int | None = 1
    match: str = ""


class Call(NamedTuple):
    """A call that changes a file or a directory, noted before it is made.

    Attributes:
        number: from 1 on.
        name: of the function in the C library, as ``pwritev64v2``.
        path: of its file or directory.
        new_path: target of a rename; empty for other calls.
    """

    number: int
    name: str
    path: str
    new_path: str

    @property
    def subject(self) -> str:
        """``CALL:PATH``; for a rename ``CALL:PATH>NEW_PATH``."""
        return f"{self.name}:{self.path}{f'>{self.new_path}' if self.new_path else ''}"

    def __str__(self) -> str:
        return f"{self.name} of {self.path}{f' to {self.new_path}' if self.new_path else ''}"


def compiled(folder: Path) -> Path:
    """Compile the library into a folder, and return its path.

    Raises:
        NoLibraryError: there is no compiler, or it refuses.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NoLibraryError("no C compiler: neither gcc nor cc is on the path")
    path = folder / "failing_calls.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o", str(path), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoLibraryError(f"{compiler} refuses {SOURCE.name}: {done.stderr[-2000:]}")
    return path


def preloading(
    library: Path, under: Path, *, log: Path | None = None, failure: Failure | None = None
) -> dict[str, str]:
    """Return the environment of a process whose calls are counted.

    Args:
        library: see `compiled`.
        under: calls that change files below this directory count.
        log: gets a line for each counted call; `calls_in` reads it.
        failure: the calls that fail; None for none.
    """
    variables = {"LD_PRELOAD": str(library), "FAILING_CALLS_UNDER": os.path.realpath(under)}
    if log is not None:
        variables["FAILING_CALLS_LOG"] = str(log)
    if failure is not None:
        variables["FAILING_CALLS_KIND"] = failure.kind
        variables["FAILING_CALLS_AT"] = str(failure.at)
        variables["FAILING_CALLS_TIMES"] = str(failure.times or 0)
        variables["FAILING_CALLS_MATCH"] = failure.match
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FAILING_CALLS_")}
    return {**inherited, **variables}


def calls_in(log: Path) -> list[Call]:
    """Return the counted calls of a process, in their order."""
    if not log.exists():
        return []
    lines = [line.split("\t") for line in log.read_text().splitlines()]
    return sorted(Call(int(number), *names) for number, *names in lines)
