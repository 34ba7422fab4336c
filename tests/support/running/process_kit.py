"""Python source in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from splashdam.wire.messages.produce import ProduceRequest
from support.scripted.cluster import Trouble


def run_script(
    script: str, *arguments: str, timeout: float = 500, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs ``script`` in a child process, in ``cwd`` if given; warnings are errors there, too."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd,
        check=False,
    )


def silent_produce(message: Any) -> Trouble:
    """A scripted broker's ``trouble_for``: records are never acknowledged."""
    return Trouble(then="silence" if isinstance(message, ProduceRequest) else "answer")
