"""Random lives of batches against a model: each waiter is told once, in time, through all splits."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.running.examples import examples

from splashdam.model.errors import IllegalStateError, KafkaError
from splashdam.model.values import TopicPartition

RECORDS = 12


@dataclass
class Leaf:
    """A batch on its way, and what should become of it."""

    outcome: Any
    first: int
    count: int
    ended: bool = False
    told: bool = False  # its waiters were run
    base_offset: int | None = None
    error: KafkaError | None = None


@dataclass
class Waiting:
    """A waiter that stands in line (or stood)."""

    index: int
    handle: Any
    calls: list[int] = field(default_factory=list)
    removed: bool = False


class Lives(RuleBasedStateMachine):
    """One batch of twelve records, split at will."""

    kernel: ModuleType

    def __init__(self) -> None:
        super().__init__()
        self.root = self.kernel.BatchOutcome(TopicPartition("t", 0))
        self.leaves = [Leaf(self.root, 0, RECORDS)]
        self.waiting: list[Waiting] = []

    def leaf_of(self, index: int) -> Leaf:
        return next(leaf for leaf in self.leaves if leaf.first <= index < leaf.first + leaf.count)

    def pending(self) -> list[Leaf]:
        return [leaf for leaf in self.leaves if not leaf.ended]

    def is_done(self, index: int) -> bool:
        return all(leaf.ended for leaf in self.leaves) if index < 0 else self.leaf_of(index).ended

    def was_told(self, index: int) -> bool:
        return all(leaf.told for leaf in self.leaves) if index < 0 else self.leaf_of(index).told

    @rule(index=st.integers(-1, RECORDS - 1))
    def add_waiter(self, index: int) -> None:
        """Refused exactly if there is nothing to wait for."""
        calls: list[int] = []
        handle = self.root.add_waiter(lambda: calls.append(1), index)
        assert (handle is None) == self.is_done(index)
        if handle is not None:
            self.waiting.append(Waiting(index, handle, calls))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def remove_waiter(self, data: st.DataObject) -> None:
        """At any time, also too late."""
        waiting = data.draw(st.sampled_from(self.waiting))
        if not waiting.calls:
            waiting.removed = True
        self.root.remove_waiter(waiting.handle)

    @precondition(lambda self: self.pending())
    @rule(data=st.data(), offset=st.integers(-1, 1000))
    def succeed(self, data: st.DataObject, offset: int) -> None:
        """A part is acknowledged."""
        leaf = data.draw(st.sampled_from(self.pending()))
        leaf.outcome.succeed(offset, -1)
        leaf.ended, leaf.base_offset = True, offset

    @precondition(lambda self: self.pending())
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        """A part fails."""
        leaf = data.draw(st.sampled_from(self.pending()))
        leaf.error = KafkaError("failed")
        leaf.outcome.fail(leaf.error)
        leaf.ended = True

    @precondition(lambda self: any(leaf.count > 1 for leaf in self.pending()))
    @rule(data=st.data())
    def split(self, data: st.DataObject) -> None:
        """Split a part in two or three."""
        leaf = data.draw(st.sampled_from([leaf for leaf in self.pending() if leaf.count > 1]))
        cuts = data.draw(st.sets(st.integers(1, leaf.count - 1), min_size=1, max_size=2))
        bounds = [0, *sorted(cuts), leaf.count]
        parts = [
            Leaf(self.kernel.BatchOutcome(TopicPartition("t", 0)), leaf.first + low, high - low)
            for low, high in pairwise(bounds)
        ]
        leaf.outcome.split(bounds, [part.outcome for part in parts])
        at = self.leaves.index(leaf)
        self.leaves[at : at + 1] = parts

    @precondition(lambda self: any(leaf.ended and not leaf.told for leaf in self.leaves))
    @rule()
    def run_waiters(self) -> None:
        """The sender gets round to telling."""
        for leaf in self.leaves:
            if leaf.ended:
                leaf.outcome.run_waiters()
                leaf.told = True

    @rule(event=st.sampled_from(["succeed", "fail", "split"]))
    def late_events(self, event: str) -> None:
        """After a success everything is refused; after a failure only a split is."""
        for leaf in self.leaves:
            arguments: dict[str, tuple[Any, ...]] = {
                "succeed": (5, 5),
                "fail": (KafkaError("late"),),
                "split": ([0, 1], [self.kernel.BatchOutcome(None)]),
            }
            if leaf.ended and (leaf.error is None or event == "split"):
                with pytest.raises(IllegalStateError):
                    getattr(leaf.outcome, event)(*arguments[event])
            elif leaf.ended:
                getattr(leaf.outcome, event)(*arguments[event])

    @invariant()
    def waiters_were_called_when_due(self) -> None:
        """Once if its record was told, never before, never if removed."""
        for waiting in self.waiting:
            due = self.was_told(waiting.index) and not waiting.removed
            assert len(waiting.calls) == due

    @invariant()
    def results_are_right(self) -> None:
        """Every record's offset or error is that of its part."""
        assert self.root.done() == self.is_done(-1)
        for index in range(RECORDS):
            leaf = self.leaf_of(index)
            assert self.root.error_of(index) is leaf.error
            if leaf.base_offset is not None:
                expected = -1 if leaf.base_offset < 0 else leaf.base_offset + index - leaf.first
                assert self.root.offset_of(index) == expected


def test_lives(kernel: ModuleType) -> None:
    """Both twins live by the model."""
    machine = type("LivesOfTwin", (Lives,), {"kernel": kernel})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples(60), stateful_step_count=25, deadline=None)
    )
