"""Runs the command: in this process where that shows the same, else as a shell would, with pipes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from click.testing import CliRunner

from splashdam.cli.commands import splashdam

COMMAND = (sys.executable, "-W", "error", "-m", "splashdam.cli")


class Done(NamedTuple):
    """How the command ended."""

    returncode: int
    stdout: bytes
    stderr: bytes


def run(*arguments: str, lines: bytes = b"") -> Done:
    """Runs the command to its end in this process, with `lines` on standard input."""
    result = CliRunner().invoke(splashdam, arguments, input=lines)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout_bytes, result.stderr_bytes)


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
