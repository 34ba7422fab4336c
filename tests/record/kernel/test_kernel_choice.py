"""Which twin is used, what both have, and what the compiled one promises about memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from splashdam.record import kernel as chosen

ROOM = Path(__file__).resolve().parents[3] / "record"


def implementation(**environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name != "SPLASHDAM_PURE"}
    code = "from splashdam.record import kernel; print(kernel.IMPL, kernel.BatchBuffer.__module__)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=inherited | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_python_twin_can_be_forced() -> None:
    """Any text in the variable does."""
    assert implementation(SPLASHDAM_PURE="yes") == "python splashdam.record.kernel.building.buffer"


def test_the_compiled_twin_is_preferred(twins: tuple[ModuleType, ModuleType]) -> None:
    """The compiled twin is used if it is built."""
    assert [twin.IMPL for twin in twins] == ["python", "c"]
    assert implementation() == implementation(SPLASHDAM_PURE="") == "c splashdam.record.kernel._kernel_c"


def test_both_have_the_same_names(twins: tuple[ModuleType, ModuleType]) -> None:
    """Their classes have the same public methods and attributes."""
    python, compiled = twins
    # "@…" is pytest's: it rewrites the assertions of a package that brings a plugin, if it is no checkout
    shared = sorted({name for name in vars(python) if not name.startswith(("_", "@"))} - {"annotations"})
    assert len(shared) > 20
    assert [name for name in shared if not hasattr(compiled, name)] == []
    assert [name for name in shared if not hasattr(chosen, name)] == []
    for name in (
        "BatchBuffer",
        "BatchOutcome",
        "FutureCell",
        "LoopFuture",
        "LoopWatch",
        "NowaitSends",
        "PartitionLane",
        "Sends",
        "FastPath",
        "Telling",
        "TopicLanes",
        "Wait",
    ):
        faces = [{each for each in dir(getattr(twin, name)) if not each.startswith("_")} for twin in twins]
        assert faces[0] == faces[1], name


def test_the_compiled_twin_reads_no_clock_and_does_no_io() -> None:
    """What import-linter cannot see in a .pyx."""
    sources = [ROOM / "kernel/_kernel_c.pyx", *(ROOM / "kernel").rglob("*.pxi")]
    text = "\n".join(source.read_text() for source in sources)
    imports = re.findall(r"^\s*(?:from|c?import)\s+([\w.]+)", text, re.MULTILINE)
    allowed = {"cython", "bisect", "collections", "operator", "types", "weakref"}
    for name in imports:
        root = name.split(".")[0]
        assert root in {"cpython", "libc"} or name in allowed or name.startswith("splashdam."), name
        if root == "splashdam":
            assert name.split(".")[1] in {"model", "record"}
