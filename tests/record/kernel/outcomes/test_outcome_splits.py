"""What became of a batch that was split: results of its parts, and waiters that move along."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from support.record.outcome_kit import ERROR, TP, Calls, outcome_in

from splashdam.model.errors import IllegalArgumentError
from splashdam.record.kernel import PENDING, SUCCEEDED


def split_in_two(kernel: ModuleType) -> tuple[Any, Any, Any]:
    parent, first, second = (kernel.BatchOutcome(TP) for _ in range(3))
    parent.split([0, 2, 5], [first, second])
    return parent, first, second


def test_results_come_from_the_parts(kernel: ModuleType) -> None:
    """A record's result is that of the part it went to, through any number of splits."""
    parent, first, second = split_in_two(kernel)
    third, fourth = kernel.BatchOutcome(TP), kernel.BatchOutcome(TP)
    second.split([0, 1, 3], [third, fourth])
    first.succeed(10, 50)
    third.fail(ERROR)
    assert not parent.done()
    fourth.succeed(20, 60)
    assert parent.done()
    assert [parent.offset_of(index) for index in (0, 1, 3, 4)] == [10, 11, 20, 21]
    assert parent.error_of(2) is ERROR
    assert parent.leaf_of(4) == (fourth, 1)
    assert parent.leaf_of(1)[0].log_append_time_ms == 50


@pytest.mark.parametrize("index", [-1, 5, 100])
def test_records_that_were_not_there(kernel: ModuleType, index: int) -> None:
    """A split knows how many records there were."""
    parent, _, _ = split_in_two(kernel)
    with pytest.raises(IllegalArgumentError, match=f"record {index} of a batch that held 5"):
        parent.leaf_of(index)


@pytest.mark.parametrize("bounds", [[], [0], [0, 2], [0, 2, 2], [1, 2, 5], [0, 5, 2], [0, 1, 2, 3]])
def test_bounds_that_do_not_fit(kernel: ModuleType, bounds: list[int]) -> None:
    """Two parts have three ascending bounds from 0; nothing changes otherwise."""
    parent = kernel.BatchOutcome(TP)
    with pytest.raises(IllegalArgumentError):
        parent.split(bounds, [kernel.BatchOutcome(TP), kernel.BatchOutcome(TP)])
    assert parent.state == PENDING


def test_no_parts(kernel: ModuleType) -> None:
    """A split has at least one part, and parts are pending."""
    with pytest.raises(IllegalArgumentError):
        kernel.BatchOutcome(TP).split([0], [])
    with pytest.raises(IllegalArgumentError, match="not pending"):
        kernel.BatchOutcome(TP).split([0, 1], [outcome_in(kernel, SUCCEEDED)])


def test_waiters_move_along(kernel: ModuleType) -> None:
    """A record's waiter is called with its part, the batch's with the last part."""
    parent, first, second = (kernel.BatchOutcome(TP) for _ in range(3))
    calls = Calls()
    for name, index in (("r0", 0), ("all", -1), ("r4", 4)):
        parent.add_waiter(calls.waiter(name), index)
    parent.split([0, 2, 5], [first, second])
    parent.run_waiters()
    assert calls == []
    second.succeed(0, -1)
    second.run_waiters()
    assert calls == ["r4"]
    first.fail(ERROR)
    first.run_waiters()
    assert calls == ["r4", "r0", "all"]


def test_waiters_added_after_a_split(kernel: ModuleType) -> None:
    """They go to the part; where that is done they are refused."""
    parent, first, second = split_in_two(kernel)
    calls = Calls()
    first.succeed(0, -1)
    first.run_waiters()
    assert parent.add_waiter(calls.waiter("r0"), 0) is None
    assert parent.add_waiter(calls.waiter("r2"), 2) is not None
    assert parent.add_waiter(calls.waiter("all")) is not None
    second.succeed(0, -1)
    second.run_waiters()
    assert calls == ["r2", "all"]
    assert parent.add_waiter(calls.waiter("late")) is None


def test_waiters_of_a_part_that_is_split_again(kernel: ModuleType) -> None:
    """Handles survive two moves: they are called once, or removed."""
    parent, first, second, third = (kernel.BatchOutcome(TP) for _ in range(4))
    calls = Calls()
    parent.add_waiter(calls.waiter("r3"), 3)
    removed = parent.add_waiter(calls.waiter("removed"), 4)
    parent.add_waiter(calls.waiter("all"))
    removed_all = parent.add_waiter(calls.waiter("removed all"))
    parent.split([0, 5], [first])
    first.split([0, 2, 5], [second, third])
    parent.remove_waiter(removed)
    parent.remove_waiter(removed_all)
    for leaf in (third, second):
        leaf.succeed(0, -1)
        leaf.run_waiters()
    assert calls == ["r3", "all"]


def test_a_wrong_index_does_not_lose_the_other_waiters(kernel: ModuleType) -> None:
    """The waiter of a record that was not there is reported; those around it moved to their parts."""
    parent, child, calls = kernel.BatchOutcome(TP), kernel.BatchOutcome(TP), Calls()
    for index in (0, 99, 4):
        parent.add_waiter(calls.waiter(str(index)), index)
    with pytest.raises(IllegalArgumentError, match="record 99 of a batch that held 5"):
        parent.split([0, 5], [child])
    parent.run_waiters()
    assert calls == []
    child.succeed(0, -1)
    child.run_waiters()
    assert calls == ["0", "4"]


def test_children_are_read_once(kernel: ModuleType) -> None:
    """What was checked is what is kept, also from a sequence that changes its mind."""

    class Fickle(list[Any]):
        seen = 0

        def __iter__(self) -> Iterator[Any]:
            self.seen += 1
            return iter([child] if self.seen == 1 else [object()])

    parent, child = kernel.BatchOutcome(TP), kernel.BatchOutcome(TP)
    parent.split([0, 5], Fickle([None]))
    assert parent.leaf_of(3) == (child, 3)
