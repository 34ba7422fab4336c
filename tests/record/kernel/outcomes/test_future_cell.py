"""What a delivery future is made of: a place in a batch, cheap to keep, and nothing left behind."""

from __future__ import annotations

import gc
import sys
from types import ModuleType
from typing import Any

import pytest

from splashdam.model.errors import KafkaError
from splashdam.model.values import TopicPartition
from splashdam.record.kernel import _kernel_py

TP = TopicPartition("t", 3)
ERROR = KafkaError("no")


def test_a_cell(kernel: ModuleType) -> None:
    """It is a place in a batch, and sizes."""
    outcome = kernel.BatchOutcome(TP)
    cell = kernel.FutureCell(outcome, 4, 2**45, 1, 2, 3)
    assert cell.outcome is outcome
    assert (cell.index, cell.timestamp_ms, cell.key_size, cell.value_size, cell.header_size) == (
        4,
        2**45,
        1,
        2,
        3,
    )
    small = kernel.FutureCell(outcome=outcome, index=0, timestamp_ms=0)
    assert (small.key_size, small.value_size, small.header_size) == (-1, -1, -1)


def test_a_cell_is_done_with_its_record(kernel: ModuleType) -> None:
    """After a split its own part counts, not the whole batch."""
    parent, first, second = (kernel.BatchOutcome(TP) for _ in range(3))
    cells = [kernel.FutureCell(parent, index, 0) for index in (1, 3)]
    assert [cell.done() for cell in cells] == [False, False]
    parent.split([0, 2, 5], [first, second])
    second.fail(ERROR)
    assert [cell.done() for cell in cells] == [False, True]
    first.succeed(0, -1)
    assert [cell.done() for cell in cells] == [True, True]


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


def test_no_compiled_class_carries_generated_pickling(twins: tuple[ModuleType, ModuleType]) -> None:
    """Cython's makes objects without what their methods count on."""
    _, compiled = twins
    for name, thing in vars(compiled).items():
        assert not name.startswith("__pyx_unpickle")
        assert not hasattr(thing, "__setstate_cython__")
