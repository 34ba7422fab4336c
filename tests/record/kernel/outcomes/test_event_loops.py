"""What a loop waits for: one wake-up for all batches that have ended, each callback once, held wakes.

With asyncio's own loop and futures it is tested in ``tests/client/test_asyncio_futures.py``.
"""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from types import ModuleType
from typing import Any

import pytest

from splashdam.model.errors import IllegalStateError
from splashdam.model.values import TopicPartition

TP = TopicPartition("t", 3)


class Loop:
    """Runs what it is given when the test says so; counts how it was woken."""

    def __init__(self) -> None:
        self.ready: deque[Callable[[], object]] = deque()
        self.problems: list[dict[str, Any]] = []
        self.wakes = 0
        self.closed = False

    def call_soon(self, function: Callable[[], object]) -> None:
        self.ready.append(function)

    def call_soon_threadsafe(self, function: Callable[[], object]) -> None:
        if self.closed:
            raise RuntimeError("closed")
        self.wakes += 1
        self.ready.append(function)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.problems.append(context)

    def turn(self) -> None:
        for _ in range(len(self.ready)):
            self.ready.popleft()()


class Waiting:
    """Batches, the watch of a loop, and what the loop was told."""

    def __init__(self, kernel: ModuleType) -> None:
        self.kernel = kernel
        self.loop = Loop()
        self.watch = kernel.LoopWatch(self.loop)
        self.told: list[Any] = []

    def batch(self, count: int = 1) -> tuple[Any, list[Any]]:
        outcome = self.kernel.BatchOutcome(TP)
        return outcome, [self.kernel.FutureCell(outcome, index, 0) for index in range(count)]

    def add(self, cell: Any, told: Callable[[Any], object] | None = None) -> Any:
        telling = self.kernel.Telling(cell, told or self.told.append, copy_context())
        self.watch.add(telling)
        return telling


def end(outcome: Any) -> None:
    outcome.succeed(5, -1)
    outcome.run_waiters()


@pytest.fixture
def waiting(kernel: ModuleType) -> Waiting:
    """One twin after the other."""
    return Waiting(kernel)


def test_batches_that_end_before_the_loop_runs_wake_it_once(waiting: Waiting) -> None:
    """Each callback is called once, in the order of the batches, the records and the calls."""
    (first, cells), (second, others) = waiting.batch(2), waiting.batch(2)
    for cell in (*others, *cells, cells[0]):
        waiting.add(cell)
    assert (waiting.loop.wakes, len(waiting.loop.ready)) == (0, 0)
    end(first)
    end(second)
    assert waiting.loop.wakes == 1
    assert waiting.told == []
    waiting.loop.turn()
    assert waiting.told == [cells[0], cells[0], cells[1], *others]
    waiting.loop.turn()
    assert len(waiting.told) == 5


def test_what_is_done_is_told_in_the_next_turn(waiting: Waiting) -> None:
    """Not in the call; and what a callback adds not in the same turn."""
    outcome, (cell,) = waiting.batch()
    end(outcome)
    waiting.add(cell, waiting.add)
    assert waiting.told == []
    waiting.loop.turn()
    assert waiting.told == []
    waiting.loop.turn()
    assert waiting.told == [cell]
    assert not waiting.loop.ready


def test_a_run_of_the_loop_inside_a_callback_tells_the_rest(waiting: Waiting) -> None:
    """As ``nest_asyncio`` does; the outer turn finds nothing left."""
    outcome, cells = waiting.batch(3)
    late, (another,) = waiting.batch()

    def nested(cell: Any) -> None:
        end(late)
        waiting.loop.turn()
        waiting.told.append(cell)

    waiting.add(cells[0], nested)
    for cell in (*cells[1:], another):
        waiting.add(cell)
    end(outcome)
    waiting.loop.turn()
    assert waiting.told == [cells[1], cells[2], another, cells[0]]


def test_wakes_of_a_turn_that_tells_several_are_held_to_its_end(waiting: Waiting) -> None:
    """Once each; a turn that tells one task holds nothing, nor does what runs outside of one."""
    outcome, cells = waiting.batch(2)

    def wake() -> None:
        waiting.told.append("wake")

    def send(cell: Any) -> None:
        assert waiting.watch.hold(wake)
        waiting.told.append(cell)

    for cell in cells:
        waiting.add(cell, send)
    assert not waiting.watch.hold(wake)
    end(outcome)
    waiting.loop.turn()
    assert waiting.told == [*cells, "wake"]
    alone, (cell,) = waiting.batch()
    waiting.add(cell, lambda _: waiting.told.append(waiting.watch.hold(wake)))
    end(alone)
    waiting.loop.turn()
    assert waiting.told == [*cells, "wake", False]
    waiting.loop.turn()
    assert not waiting.loop.ready
    assert len(waiting.told) == 4


def test_a_held_wake_comes_in_a_nested_run_and_after_a_ctrl_c(waiting: Waiting) -> None:
    """Else the nested loop would wait for a record that nobody sends."""
    outcome, cells = waiting.batch(2)

    def send(_cell: Any) -> None:
        waiting.watch.hold(lambda: waiting.told.append("nested"))
        waiting.loop.turn()
        waiting.told.append("after")
        waiting.watch.hold(lambda: waiting.told.append("Ctrl-C"))
        raise KeyboardInterrupt

    waiting.add(cells[0], send)
    waiting.add(cells[1])
    end(outcome)
    with pytest.raises(KeyboardInterrupt):
        waiting.loop.turn()
    assert waiting.told == ["nested", "after", "Ctrl-C"]
    waiting.loop.turn()
    assert waiting.told[3:] == [cells[1]]


def test_a_callback_runs_in_its_context_and_may_raise(waiting: Waiting) -> None:
    """The loop's handler gets what it raises; the others are called."""
    variable: ContextVar[str] = ContextVar("variable", default="outside")
    outcome, (cell,) = waiting.batch()
    variable.set("inside")

    def bad(_cell: Any) -> None:
        waiting.told.append(variable.get())
        variable.set("changed there alone")
        raise LookupError("bad")

    waiting.add(cell, bad)
    waiting.add(cell)
    variable.set("later")
    end(outcome)
    waiting.loop.turn()
    assert waiting.told == ["inside", cell]
    assert variable.get() == "later"
    (problem,) = waiting.loop.problems
    assert isinstance(problem["exception"], LookupError)
    assert problem["future"] is cell
    assert "bad" in problem["message"]


def test_removed_tellings_are_not_told(waiting: Waiting) -> None:
    """Also those of a batch that was split, whose parts end at different times."""
    outcome, cells = waiting.batch(4)
    parts = [waiting.batch()[0] for _ in range(2)]
    for cell in cells:
        waiting.add(cell)
    removed = waiting.add(cells[0])
    assert waiting.watch.remove(cells[0], lambda each: each is removed) == [removed]
    assert waiting.watch.remove(cells[0], lambda each: each is removed) == []
    outcome.split((0, 2, 4), parts)
    (late,) = waiting.watch.remove(cells[3], lambda _: True)
    assert late.waiting is cells[3]
    end(parts[0])
    waiting.loop.turn()
    assert waiting.told == [cells[1], cells[0]]  # the one that stayed was added again
    end(parts[1])
    waiting.loop.turn()
    assert waiting.told == [cells[1], cells[0], cells[2]]


def test_a_wait_is_what_a_task_awaits(waiting: Waiting) -> None:
    """It yields itself until the record is done, and returns the metadata."""
    outcome, (cell,) = waiting.batch()
    wait = waiting.kernel.Wait(cell, waiting.watch)
    assert next(wait) is wait
    assert wait._asyncio_future_blocking
    assert wait.get_loop() is waiting.loop
    wait.add_done_callback(waiting.told.append, context=copy_context())
    end(outcome)
    assert not wait.result()
    waiting.loop.turn()
    assert waiting.told == [wait]
    assert (wait.told, wait.context) == (None, None)
    assert not wait.cancel()
    with pytest.raises(StopIteration) as returned:
        wait.send(None)
    assert returned.value.value == cell.metadata()


def test_a_loop_that_is_gone_keeps_nothing(waiting: Waiting) -> None:
    """The batch ends after the loop was closed, or collected with its tasks."""
    for gone in ("closed", "collected"):
        outcome, (cell,) = waiting.batch()
        loop = Loop()
        watch = waiting.kernel.LoopWatch(loop)
        assert watch.is_of(loop)

        class Task:
            def wakeup(self, _wait: Any) -> None:
                raise AssertionError

        task = Task()
        kept = weakref.ref(task)
        watch.add(waiting.kernel.Telling(cell, task.wakeup, copy_context()))
        del task
        loop.closed = True
        if gone == "collected":
            del loop
            with pytest.raises(RuntimeError, match="gone"):
                watch.loop  # noqa: B018
        end(outcome)
        gc.collect()
        assert kept() is None


def test_a_loop_that_refused_a_call_was_not_called_again(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In debug mode asyncio refuses calls from another thread; those of its own then waited for ever."""
    outcome, cells = waiting.batch(2)
    end(outcome)

    def refuse(_function: Callable[[], object]) -> None:
        raise RuntimeError("another thread")

    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(waiting.loop, "call_soon", refuse)
        with pytest.raises(RuntimeError):
            waiting.add(cells[0])
    waiting.add(cells[1])
    waiting.loop.turn()
    assert waiting.told == [cells[1]]


def test_the_second_batch_that_ended_behind_a_closed_loop_was_kept(waiting: Waiting) -> None:
    """With its tasks, as long as the watch: it was left to a run of the loop that the first had asked for."""

    class Task:
        def wakeup(self, _wait: Any) -> None:
            raise AssertionError

    kept = []
    outcomes = []
    for _ in range(2):
        outcome, (cell,) = waiting.batch()
        task = Task()
        waiting.add(cell, task.wakeup)
        kept.append(weakref.ref(task))
        outcomes.append(outcome)
        del task, outcome, cell
    waiting.loop.closed = True
    while outcomes:
        end(outcomes.pop())
    gc.collect()
    assert [each() for each in kept] == [None, None]


def test_what_was_not_initialized_does_no_harm(waiting: Waiting) -> None:
    """Somebody may call ``__new__`` alone."""
    kernel = waiting.kernel
    with pytest.raises((IllegalStateError, AttributeError)):
        waiting.watch.add(kernel.Telling.__new__(kernel.Telling))
    wait = kernel.Wait.__new__(kernel.Wait)
    for act in (
        lambda: next(wait),
        lambda: wait.add_done_callback(print, context=copy_context()),
        wait.cancel,
        wait.get_loop,
        lambda: kernel.LoopFuture.__new__(kernel.LoopFuture).exception(),
        lambda: waiting.watch.remove(kernel.FutureCell.__new__(kernel.FutureCell), print),
    ):
        with pytest.raises((IllegalStateError, AttributeError, TypeError)):
            act()
