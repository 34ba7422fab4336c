"""The Python twin's protocol between adder and completer, with the other thread put exactly where it hurts.

CPython switches threads at these places too rarely for any number of runs; here it is certain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from splashdam.model.errors import KafkaError
from splashdam.model.values import TopicPartition
from splashdam.record.kernel import _kernel_py

TP = TopicPartition("t", 3)


class Calls(list[str]):
    """Makes waiters that note their name when called."""

    def waiter(self, name: str) -> Callable[[], None]:
        return lambda: self.append(name)


class Meddling(deque[Any]):
    """A line in which something else happens before or after an append."""

    before: Callable[[], None] = staticmethod(lambda: None)
    after: Callable[[], None] = staticmethod(lambda: None)

    def append(self, handle: Any) -> None:
        self.before()
        super().append(handle)
        self.after()


def meddled() -> tuple[Any, Meddling]:
    outcome = _kernel_py.BatchOutcome(TP)
    line = Meddling()
    outcome._waiters = line
    return outcome, line


def completion(outcome: Any) -> Callable[[], None]:
    def complete() -> None:
        outcome.succeed(0, -1)
        outcome.run_waiters()

    return complete


def test_completed_between_look_and_append() -> None:
    """The completer went by before the handle stood in line: it is taken back and refused."""
    (outcome, line), calls = meddled(), Calls()
    line.before = completion(outcome)
    assert outcome.add_waiter(calls.waiter("mine")) is None
    assert calls == []
    assert not line


def test_completed_between_append_and_second_look() -> None:
    """The completer took the handle: it has acted, so the adder must not."""
    (outcome, line), calls = meddled(), Calls()
    line.after = completion(outcome)
    assert outcome.add_waiter(calls.waiter("mine")) is not None
    assert calls == ["mine"]


@pytest.mark.parametrize("index", [-1, 1, 3])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_split_around_an_append(moment: str, index: int) -> None:
    """The handle ends up with the parts, whichever thread moved it."""
    (outcome, line), calls = meddled(), Calls()
    parts = [_kernel_py.BatchOutcome(TP), _kernel_py.BatchOutcome(TP)]
    setattr(line, moment, lambda: outcome.split([0, 2, 5], parts))
    assert outcome.add_waiter(calls.waiter("mine"), index) is not None
    for part in parts:
        assert calls == []
        completion(part)()
        if index == 1:
            break
    assert calls == ["mine"]


@pytest.mark.parametrize("index", [-1, 3])
def test_split_and_completed_before_an_append(index: int) -> None:
    """Everything is over when the handle comes: it is refused."""
    (outcome, line), calls = meddled(), Calls()
    parts = [_kernel_py.BatchOutcome(TP), _kernel_py.BatchOutcome(TP)]

    def split_and_complete() -> None:
        outcome.split([0, 2, 5], parts)
        for part in parts:
            completion(part)()

    line.before = split_and_complete
    assert outcome.add_waiter(calls.waiter("mine"), index) is None
    assert calls == []


class Watched(_kernel_py.BatchOutcome):
    """Notes what is stored, in order."""

    def __init__(self) -> None:
        object.__setattr__(self, "stored", [])
        super().__init__(TP)

    def __setattr__(self, name: str, value: object) -> None:
        self.stored.append(name)
        super().__setattr__(name, value)


EVENTS: dict[str, Callable[[Any], None]] = {
    "succeed": lambda outcome: outcome.succeed(7, 8),
    "fail": lambda outcome: outcome.fail(KafkaError("no")),
    "split": lambda outcome: outcome.split([0, 2], [_kernel_py.BatchOutcome(TP)]),
}


@pytest.mark.parametrize("event", EVENTS)
def test_the_state_is_stored_last(event: str) -> None:
    """A thread that sees the state also sees the result."""
    outcome = Watched()
    del outcome.stored[:]
    EVENTS[event](outcome)
    assert outcome.stored[-1] == "state"
    assert len(outcome.stored) == 3
