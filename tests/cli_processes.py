"""Runs the command as a shell would: a process of its own, with pipes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMMAND = (sys.executable, "-W", "error", "-m", "splashdam.cli")
TIMEOUT_SECONDS = 60


def run(
    *arguments: str, lines: bytes = b"", folder: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs the command to its end with `lines` on standard input."""
    return subprocess.run(
        [*COMMAND, *arguments],
        input=lines,
        cwd=folder,
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Starts the command; kills it at the end of the test, if it is still there."""
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[bytes]) -> str:
    """Waits for the first line of standard output; a process that ends without one fails the test."""
    assert process.stdout is not None
    line = process.stdout.readline().decode().rstrip("\n")
    if not line:
        raise AssertionError(process.communicate()[1].decode())
    return line
