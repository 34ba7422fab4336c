"""Which twin is used, what both have, and what the compiled one promises about memory."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from splashdam.model.values import TopicPartition
from splashdam.record import _kernel_py
from splashdam.record import kernel as chosen

ROOM = Path(__file__).resolve().parents[2] / "record"


def implementation(**environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name != "SPLASHDAM_PURE"}
    code = "from splashdam.record import kernel; print(kernel.IMPL, kernel.BatchBuffer.__module__)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=inherited | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_python_twin_can_be_forced() -> None:
    """Any text in the variable does."""
    assert implementation(SPLASHDAM_PURE="yes") == "python splashdam.record._kernel_py"


def test_the_compiled_twin_is_preferred(twins: tuple[ModuleType, ModuleType]) -> None:
    """Where it is built, it serves."""
    assert [twin.IMPL for twin in twins] == ["python", "c"]
    assert implementation() == implementation(SPLASHDAM_PURE="") == "c splashdam.record._kernel_c"


def test_both_have_the_same_names(twins: tuple[ModuleType, ModuleType]) -> None:
    """And their classes the same public methods and attributes."""
    python, compiled = twins
    assert python.__all__ == compiled.__all__
    assert set(python.__all__) <= set(chosen.__all__)
    for name in ("BatchBuffer", "BatchOutcome", "FutureCell"):
        faces = [{each for each in dir(getattr(twin, name)) if not each.startswith("_")} for twin in twins]
        assert faces[0] == faces[1]


def test_the_compiled_twin_reads_no_clock_and_does_no_io() -> None:
    """What import-linter cannot see in a .pyx."""
    imports = re.findall(
        r"^\s*(?:from|c?import)\s+([\w.]+)", (ROOM / "_kernel_c.pyx").read_text(), re.MULTILINE
    )
    allowed = {"cython", "bisect", "operator"}
    for name in imports:
        root = name.split(".")[0]
        assert root in {"cpython", "libc"} or name in allowed or name.startswith("splashdam."), name
        if root == "splashdam":
            assert name.split(".")[1] in {"model", "record"}


class Delivery(_kernel_py.FutureCell):
    """A future as ``client`` makes it, over the Python twin."""

    __slots__ = ()

    def answer(self) -> int:
        return self.index * 2


def subclass_of(twin: ModuleType) -> Any:
    return type("Delivery", (twin.FutureCell,), {"__slots__": (), "answer": Delivery.answer})


def test_futures_can_be_derived(kernel: ModuleType) -> None:
    """A subclass adds methods and nothing else."""
    future = subclass_of(kernel)(kernel.BatchOutcome(None), 21, 0)
    assert future.answer() == 42
    with pytest.raises(AttributeError):
        future.anything = 1


def test_compiled_futures_are_not_tracked(twins: tuple[ModuleType, ModuleType]) -> None:
    """The garbage collector does not see them, nor those of a subclass."""
    _, compiled = twins
    outcome = compiled.BatchOutcome(TopicPartition("t", 0))
    for kind in (compiled.FutureCell, subclass_of(compiled)):
        future = kind(outcome, 0, 0)
        assert not gc.is_tracked(future)
        assert future.outcome is outcome


def test_futures_leave_nothing_behind(kernel: ModuleType) -> None:
    """Outcome and class have as many references as before."""
    kind, outcome = subclass_of(kernel), kernel.BatchOutcome(None)
    before = sys.getrefcount(outcome), sys.getrefcount(kind)
    futures = [kind(outcome, index, 0) for index in range(1000)]
    assert sys.getrefcount(outcome) == before[0] + 1000
    del futures
    assert (sys.getrefcount(outcome), sys.getrefcount(kind)) == before
    for wrong in ((), (outcome,), (outcome, "x", 0), (outcome, 0, 0, 0, 0, 0, 0)):
        if kernel.IMPL == "c" or wrong != (outcome, "x", 0):
            with pytest.raises(TypeError):
                kind(*wrong)
    del wrong
    assert (sys.getrefcount(outcome), sys.getrefcount(kind)) == before


def test_a_finished_batch_lets_go(kernel: ModuleType) -> None:
    """A waiter that refers back to its future makes a cycle only until the batch ends."""
    gc.collect()
    gc.disable()
    try:
        outcome = kernel.BatchOutcome(None)
        future = kernel.FutureCell(outcome, 0, 0)
        outcome.add_waiter(future.done, 0)
        before = sys.getrefcount(future)
        outcome.succeed(0, -1)
        outcome.run_waiters()
        assert sys.getrefcount(future) == before - 1
    finally:
        gc.enable()


def test_appending_keeps_no_reference(kernel: ModuleType) -> None:
    """Key, value and headers are copied; nothing of them stays."""
    key, value, header = bytes(3), bytes(1000), bytes(5)
    headers = [("name", header)]
    before = [sys.getrefcount(thing) for thing in (key, value, header, headers)]
    buffer = kernel.BatchBuffer(200_000)
    for _ in range(50):
        assert buffer.try_append(0, key, value, headers)
        assert buffer.try_append(0, bytearray(key), memoryview(value), tuple(headers))
    with pytest.raises(TypeError):
        buffer.try_append(0, key, value, [*headers, ("bad", 5)])
    assert [sys.getrefcount(thing) for thing in (key, value, header, headers)] == before
