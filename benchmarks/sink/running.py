"""Starts the common sink, which is compiled on the spot if there is a C compiler, and reads its counts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

HERE = Path(__file__).resolve().parent
PARTITIONS = 4


def sink_command(kind: str, build_dir: Path) -> tuple[str, list[str]]:
    """Return the sink's language and the command that starts it; a number of partitions may follow.

    Args:
        kind: "c", "python", or "auto" for C if a compiler is found.
        build_dir: folder for the compiled program.
    """
    compiler = shutil.which(os.environ.get("CC") or "cc")
    if kind == "python" or (kind == "auto" and compiler is None):
        return "Python", [sys.executable, str(HERE / "sink.py")]
    if compiler is None:
        raise SystemExit("no C compiler found; --sink python needs none")
    program = build_dir / "sink"
    subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-o", program, HERE / "sink.c"], check=True)
    return "C", [str(program)]


def temporary_build_dir() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="splashdam-bench-")


class RunningSink:
    """One sink process for one measurement, so that its counts are those of one client."""

    topic = "bench"  # any name would do

    def __init__(self, command: list[str], partitions: int = PARTITIONS) -> None:
        self.partitions = partitions
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.bootstrap = f"127.0.0.1:{int(self._process.stdout.readline())}"

    def counts(self) -> dict[str, int]:
        """Stop the sink, and return its counts: records, bytes, batches, requests.

        Raises:
            RuntimeError: the sink had stopped by itself, because a client sent a request it does not know.
        """
        out, errors = self._process.communicate("", timeout=30)
        if self._process.returncode != 0 or errors:
            raise RuntimeError(f"the sink failed: {errors.strip()}")
        counts: dict[str, int] = json.loads(out)
        return counts

    def __enter__(self) -> RunningSink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
