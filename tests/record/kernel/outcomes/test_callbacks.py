"""Callbacks of applications: called once, with what became of the record, and alone in what they raise."""

from __future__ import annotations

import gc
import weakref
from types import ModuleType
from typing import Any

import pytest
from support.running.patches import perhaps

from splashdam.model.errors import KafkaError
from splashdam.model.values import RecordMetadata, TopicPartition
from splashdam.record.kernel.outcomes import outcome_table

TP = TopicPartition("t", 3)


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the kernel tells ``client``, in order."""
    told: list[Any] = []
    entered = perhaps(lambda: told.append("in") or False, because="a test has another one")
    failed = perhaps(told.append, because="few callbacks fail")
    monkeypatch.setattr(outcome_table, "enter_callbacks", entered)
    monkeypatch.setattr(outcome_table, "leave_callbacks", lambda _before: told.append("out"))
    monkeypatch.setattr(outcome_table, "on_callback_error", failed)
    return told


def cells(kernel: ModuleType, count: int) -> tuple[Any, list[Any]]:
    outcome = kernel.BatchOutcome(TP)
    return outcome, [kernel.FutureCell(outcome, index, 10 + index, 1, 2, 3) for index in range(count)]


def test_each_hears_of_its_own_record(kernel: ModuleType, hooks: list[Any]) -> None:
    """Metadata or error, between the arguments; in the order in which they were added."""
    outcome, (good, bad) = cells(kernel, 2)
    heard: list[Any] = []

    def hear(*args: Any, **kwargs: Any) -> None:
        heard.append((args, kwargs))

    assert good.add_callback(hear, "a", b=1).add_errback(hear) is good
    bad.add_callback(hear).add_errback(hear).add_both(hear, "both")
    good.add_both(hear)
    outcome.fail(KafkaError("whole"), {1: KafkaError("one")})
    outcome.run_waiters()
    outcome.run_waiters()
    assert [(args[:-1], str(args[-1]), kwargs) for args, kwargs in heard] == [
        ((), "whole", {}),
        ((), "one", {}),
        (("both",), "one", {}),
        ((), "whole", {}),
    ]
    assert heard[0][0][0] is not outcome.error
    outcome, (cell,) = cells(kernel, 1)
    heard.clear()
    cell.add_errback(hear).add_callback(hear, 1, 2, three=3)
    outcome.succeed(40, -1)
    outcome.run_waiters()
    metadata = RecordMetadata("t", 3, TP, 40, 10, None, 1, 2, 3)
    assert heard == [((1, 2, metadata), {"three": 3})]
    assert type(heard[0][0][2]) is RecordMetadata
    assert cell.metadata() == metadata
    assert hash(cell.metadata()) == hash(metadata)


def test_a_record_that_is_done_calls_at_once(kernel: ModuleType, hooks: list[Any]) -> None:
    """The hooks are called before and after it, as in the sender's loop."""
    outcome, (cell,) = cells(kernel, 1)
    outcome.succeed(-1, 77)
    heard: list[Any] = []
    cell.add_callback(heard.append)
    assert (heard[0].offset, heard[0].timestamp) == (-1, 77)
    assert hooks == ["in", "out"]


def test_what_one_raises_reaches_the_hook_alone(kernel: ModuleType, hooks: list[Any]) -> None:
    """The others are called all the same; what the hook lets through is raised at the end."""
    outcome, (first, second) = cells(kernel, 2)
    heard: list[Any] = []
    trouble, interrupt = RuntimeError("mine"), KeyboardInterrupt()

    def fail(error: BaseException, _metadata: Any) -> None:
        raise error

    first.add_callback(fail, trouble).add_callback(fail, interrupt)
    second.add_callback(heard.append)
    outcome.add_waiter(lambda: heard.append("waiter"))
    outcome.succeed(0, -1)
    outcome.run_waiters()
    assert [each for each in hooks if each not in {"in", "out"}] == [trouble, interrupt]
    assert [getattr(each, "offset", each) for each in heard] == [1, "waiter"]
    outcome, (only,) = cells(kernel, 1)
    outcome_table.on_callback_error = outcome_table.log_callback_error
    only.add_callback(fail, interrupt)
    outcome.succeed(0, -1)
    with pytest.raises(KeyboardInterrupt):
        outcome.run_waiters()


def test_they_follow_a_split(kernel: ModuleType, hooks: list[Any]) -> None:
    """Each goes with its record, and is called when that part is done."""
    outcome, (first, second) = cells(kernel, 2)
    parts = [kernel.BatchOutcome(TP), kernel.BatchOutcome(TP)]
    heard: list[Any] = []
    first.add_callback(heard.append)
    second.add_callback(heard.append).add_errback(heard.append)
    outcome.split([0, 1, 2], parts)
    parts[1].fail(KafkaError("part"))
    parts[1].run_waiters()
    assert [str(each) for each in heard] == ["part"]
    parts[0].succeed(7, -1)
    parts[0].run_waiters()
    assert heard[1].offset == 7


def test_an_interrupt_before_the_callbacks_keeps_none_from_being_called(
    kernel: ModuleType, hooks: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control-C in ``enter_callbacks`` dropped the next callback; it is raised when all were called."""
    interrupts = [KeyboardInterrupt()]

    def enter() -> bool:
        if interrupts:
            raise interrupts.pop()
        hooks.append("in")
        return False

    monkeypatch.setattr(outcome_table, "enter_callbacks", enter)
    outcome, (first, second) = cells(kernel, 2)
    for cell in (first, second):
        cell.add_callback(lambda metadata: hooks.append(metadata.offset))
    outcome.add_waiter(lambda: hooks.append("awake"))
    outcome.succeed(10, -1)
    with pytest.raises(KeyboardInterrupt):
        outcome.run_waiters()
    assert hooks in ([10, "in", 11, "awake", "out"], [10, "in", 11, "out", "awake"])
    del hooks[:]
    interrupts.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        first.add_callback(lambda metadata: hooks.append(metadata.offset))
    assert hooks == [10]


def test_nothing_is_left_of_a_callback_that_was_called(kernel: ModuleType, hooks: list[Any]) -> None:
    """Even a function that refers to its own future is freed, without the garbage collector."""

    class Listener:
        def __init__(self, future: Any) -> None:
            self.future = future

        def hear(self, _metadata: Any) -> None:
            pass

    gc.disable()
    try:
        outcome, (cell,) = cells(kernel, 1)
        listener = Listener(cell)
        cell.add_callback(listener.hear)
        gone = weakref.ref(listener)
        del listener, cell
        outcome.succeed(0, -1)
        outcome.run_waiters()
        assert gone() is None
    finally:
        gc.enable()


def test_a_future_class_without_the_collector(kernel: ModuleType) -> None:
    """It has the methods, name and docstring of the original class; the compiled one is smaller."""

    class Delivery(kernel.FutureCell):  # type: ignore[misc, name-defined]
        """A delivery."""

        __slots__ = ()

        def twice(self) -> int:
            return int(self.index) * 2

        def __repr__(self) -> str:
            return "a delivery"

    made = kernel.uncollected(Delivery)
    future = made(kernel.BatchOutcome(TP), 21, 0)
    assert (future.twice(), repr(future), made.__name__, made.__doc__) == (
        42,
        "a delivery",
        "Delivery",
        "A delivery.",
    )
    assert made.__module__ == Delivery.__module__
    assert isinstance(future, kernel.FutureCell)
    if kernel.IMPL == "c":
        assert not gc.is_tracked(future)
        assert future.__sizeof__() == kernel.FutureCell.__basicsize__
        with pytest.raises(TypeError, match="must derive from FutureCell or LoopFuture alone"):
            kernel.uncollected(type("Fat", (kernel.FutureCell,), {}))
