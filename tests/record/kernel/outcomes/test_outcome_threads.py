"""Waiters come and go in many threads while another one completes and splits."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from splashdam.model.values import TopicPartition

TP = TopicPartition("t", 0)
THREADS = 4


@pytest.fixture(autouse=True)
def rapid_switching() -> Iterator[None]:
    """Threads take turns every 10 µs."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def run_together(works: list[Callable[[], None]]) -> None:
    """Starts everything at the same moment; an exception in any thread fails the test."""
    barrier = threading.Barrier(len(works))
    failures: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            barrier.wait()
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


class Adder:
    """Adds waiters to outcomes and counts who acts for each: the completer or, if refused, itself."""

    def __init__(self, indexes: list[int], remove_every: int = 0) -> None:
        self.acted: Counter[int] = Counter()
        self.removed: set[int] = set()
        self.added = 0
        self._indexes = indexes
        self._remove_every = remove_every

    def add_to(self, outcomes: list[Any]) -> None:
        for outcome in outcomes:
            for index in self._indexes:
                number = self.added
                self.added += 1
                handle = outcome.add_waiter(lambda number=number: self.act(number), index)
                if handle is None:
                    self.act(number)
                elif self._remove_every and number % self._remove_every == 0:
                    self.removed.add(number)
                    outcome.remove_waiter(handle)

    def act(self, number: int) -> None:
        self.acted[number] += 1

    def check(self) -> None:
        missing = set(range(self.added)) - set(self.acted) - self.removed
        assert not missing
        assert set(self.acted.values()) == {1}


@pytest.mark.parametrize("remove_every", [0, 3])
def test_completion(kernel: ModuleType, remove_every: int) -> None:
    """Exactly one of the two acts for every waiter; a removed one acts at most once."""
    outcomes = [kernel.BatchOutcome(TP) for _ in range(300)]
    adders = [Adder([-1, 0, 5, 0], remove_every) for _ in range(THREADS)]

    def complete() -> None:
        for outcome in outcomes:
            outcome.succeed(0, -1)
            outcome.run_waiters()

    run_together([complete, *[lambda adder=adder: adder.add_to(outcomes) for adder in adders]])
    for adder in adders:
        adder.check()


@pytest.mark.parametrize("remove_every", [0, 3])
def test_splits(kernel: ModuleType, remove_every: int) -> None:
    """The same while batches are split twice before their parts complete."""
    outcomes = [kernel.BatchOutcome(TP) for _ in range(200)]
    adders = [Adder([-1, 0, 5, 9], remove_every) for _ in range(THREADS)]

    def split_and_complete() -> None:
        for outcome in outcomes:
            parts = [kernel.BatchOutcome(TP) for _ in range(4)]
            outcome.split([0, 5, 10], parts[:2])
            parts[1].split([0, 1, 5], parts[2:])
            for part in (parts[3], parts[0], parts[2]):
                part.succeed(0, -1)
                part.run_waiters()

    run_together([split_and_complete, *[lambda adder=adder: adder.add_to(outcomes) for adder in adders]])
    for adder in adders:
        adder.check()


def test_who_sees_the_state_sees_the_result(kernel: ModuleType) -> None:
    """A reader that finds a batch done finds its result whole."""
    outcomes = [kernel.BatchOutcome(TP) for _ in range(2000)]

    def complete() -> None:
        for number, outcome in enumerate(outcomes):
            if number % 2:
                outcome.succeed(number, number)
            else:
                outcome.fail(ValueError(number), {3: KeyError(number)})

    def read() -> None:
        for number, outcome in enumerate(outcomes):
            while not outcome.done():
                pass
            if number % 2:
                assert outcome.offset_of(1) == number + 1
                assert outcome.log_append_time_ms == number
            else:
                assert type(outcome.error_of(3)) is KeyError
                assert type(outcome.error_of(0)) is ValueError

    run_together([complete, read, read])
