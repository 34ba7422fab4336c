"""What became of a batch: the table of its life, results per record, waiters."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from support.record.outcome_kit import ERROR, TP, Calls, outcome_in

from splashdam.model.errors import IllegalStateError, KafkaError
from splashdam.record.kernel import FAILED, SUCCEEDED
from splashdam.record.kernel.outcomes import outcome_table
from splashdam.record.kernel.outcomes.outcome import fresh
from splashdam.record.kernel.outcomes.outcome_table import Event, State

EVENTS: dict[Event, Callable[[ModuleType, Any], None]] = {
    Event.SUCCEED: lambda _, outcome: outcome.succeed(7, 8),
    Event.FAIL: lambda _, outcome: outcome.fail(KafkaError("other")),
    Event.SPLIT: lambda kernel, outcome: outcome.split([0, 2], [kernel.BatchOutcome(TP)]),
}


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
def test_the_table(kernel: ModuleType, state: State, event: Event) -> None:
    """Every event in every state does what the table says: leads on, is ignored, or is refused by name."""
    outcome = outcome_in(kernel, state)
    assert outcome.state == state
    if (state, event) in outcome_table.TABLE:
        EVENTS[event](kernel, outcome)
        leads_to = outcome_table.TABLE[state, event]
        assert outcome.state == (state if leads_to is None else leads_to)
        if leads_to is None:
            assert (outcome.base_offset, outcome.error) == (-1, ERROR)
    else:
        with pytest.raises(IllegalStateError, match=f"a batch that is {state.name} cannot {event.name}"):
            EVENTS[event](kernel, outcome)
        assert outcome.state == state


def test_a_new_outcome(kernel: ModuleType) -> None:
    """Nothing is known."""
    outcome = kernel.BatchOutcome(TP)
    assert outcome.topic_partition is TP
    assert not outcome.done()
    assert (outcome.base_offset, outcome.log_append_time_ms, outcome.error) == (-1, -1, None)
    assert outcome.error_of(0) is None
    with pytest.raises(IllegalStateError, match="t-3 is not done"):
        outcome.offset_of(0)


def test_success(kernel: ModuleType) -> None:
    """Offsets count up from the base."""
    outcome = kernel.BatchOutcome(TP)
    outcome.succeed(2**40, 1234)
    assert outcome.done()
    assert (outcome.base_offset, outcome.log_append_time_ms) == (2**40, 1234)
    assert outcome.offset_of(9) == 2**40 + 9
    assert outcome.error_of(9) is None


def test_success_without_offsets(kernel: ModuleType) -> None:
    """If the broker does not tell the base offset, no record has an offset."""
    outcome = kernel.BatchOutcome(TP)
    outcome.succeed(-1, -1)
    assert outcome.offset_of(0) == outcome.offset_of(5) == -1


def test_failure_of_all(kernel: ModuleType) -> None:
    """Every record raises the error."""
    outcome = outcome_in(kernel, FAILED)
    assert outcome.done()
    assert outcome.error is outcome.error_of(3) is ERROR
    with pytest.raises(KafkaError, match="no"):
        outcome.offset_of(3)


def test_failure_with_errors_of_records(kernel: ModuleType) -> None:
    """Records that are named have their own error."""
    outcome = kernel.BatchOutcome(TP)
    outcome.fail(ERROR, {2: KafkaError("mine")})
    with pytest.raises(KafkaError, match="mine"):
        outcome.offset_of(2)
    assert outcome.error_of(1) is ERROR


def test_each_record_raises_a_copy(kernel: ModuleType) -> None:
    """The error that all records share never gets a traceback: no caller's frames hang on it."""
    outcome = outcome_in(kernel, FAILED)
    caught = []
    for index in range(2):
        with pytest.raises(KafkaError, match="no") as raised:
            outcome.offset_of(index)
        caught.append(raised.value)
    assert len({id(error) for error in [*caught, ERROR]}) == 3
    assert ERROR.__traceback__ is None


def test_copies_of_errors() -> None:
    """Type, text, attributes, notes and cause are kept, the traceback is not."""

    class Odd(KafkaError):
        def __init__(self, *, number: int) -> None:
            super().__init__(f"number {number}")
            self.number = number

    cause = ValueError("why")
    with pytest.raises(Odd) as raised:
        raise Odd(number=7) from cause
    error = raised.value
    error.add_note("more")
    copy = fresh(error)
    assert isinstance(copy, Odd)
    assert (str(copy), copy.number, copy.__notes__) == ("number 7", 7, ["more"])
    assert copy.__cause__ is cause
    assert copy.__traceback__ is None
    assert str(fresh(OSError(5, "disk"))) == "[Errno 5] disk"
    assert not fresh(KafkaError("no")).__suppress_context__


# Waiters


def test_waiters_run_once_and_in_order(kernel: ModuleType) -> None:
    """Completion does not run them, ``run_waiters`` does, a second one finds none."""
    outcome, calls = kernel.BatchOutcome(TP), Calls()
    assert outcome.add_waiter(calls.waiter("record"), 3) is not None
    assert outcome.add_waiter(calls.waiter("batch")) is not None
    outcome.succeed(0, -1)
    assert calls == []
    outcome.run_waiters()
    outcome.run_waiters()
    assert calls == ["record", "batch"]


@pytest.mark.parametrize("state", [SUCCEEDED, FAILED])
def test_late_waiters_are_refused(kernel: ModuleType, state: int) -> None:
    """``add_waiter`` returns None after the end, and the caller acts itself."""
    outcome, calls = outcome_in(kernel, state), Calls()
    assert outcome.add_waiter(calls.waiter("late")) is None
    assert outcome.add_waiter(calls.waiter("late"), 1) is None
    outcome.run_waiters()
    assert calls == []


def test_removed_waiters_do_not_run(kernel: ModuleType) -> None:
    """Removing is by handle, may be repeated, and leaves the others."""
    outcome, calls = kernel.BatchOutcome(TP), Calls()
    same = calls.waiter("same")
    handles = [outcome.add_waiter(same) for _ in range(3)]
    outcome.remove_waiter(handles[1])
    outcome.remove_waiter(handles[1])
    outcome.succeed(0, -1)
    outcome.run_waiters()
    outcome.remove_waiter(handles[0])
    assert calls == ["same", "same"]


def test_a_waiter_removes_another(kernel: ModuleType) -> None:
    """One that was taken already but not called yet is not called any more."""
    outcome, calls = kernel.BatchOutcome(TP), Calls()
    handles: list[Any] = []
    outcome.add_waiter(lambda: outcome.remove_waiter(handles[0]))
    handles.append(outcome.add_waiter(calls.waiter("removed")))
    outcome.add_waiter(calls.waiter("stays"))
    outcome.fail(ERROR)
    outcome.run_waiters()
    assert calls == ["stays"]


def test_a_waiter_that_raises(kernel: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook gets the exception, the others run."""
    seen: list[Exception] = []
    monkeypatch.setattr(outcome_table, "on_waiter_error", seen.append)
    outcome, calls = kernel.BatchOutcome(TP), Calls()
    outcome.add_waiter(lambda: 1 // 0)
    outcome.add_waiter(calls.waiter("next"))
    outcome.succeed(0, -1)
    outcome.run_waiters()
    assert calls == ["next"]
    assert [type(error) for error in seen] == [ZeroDivisionError]


def test_without_a_hook_errors_are_logged(
    kernel: ModuleType, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are never lost, with or without a client."""
    monkeypatch.setattr(outcome_table, "on_waiter_error", outcome_table.log_waiter_error)
    outcome = kernel.BatchOutcome(TP)
    outcome.add_waiter(lambda: 1 // 0)
    outcome.succeed(0, -1)
    with caplog.at_level(logging.ERROR):
        outcome.run_waiters()
    (entry,) = caplog.records
    assert entry.name == "splashdam.record"
    assert entry.exc_info is not None
    assert entry.exc_info[0] is ZeroDivisionError


def test_an_interrupt_waits_for_the_others(kernel: ModuleType) -> None:
    """Control-C in a waiter is raised, after everybody was called."""
    outcome, calls = kernel.BatchOutcome(TP), Calls()

    def interrupted() -> None:
        raise KeyboardInterrupt

    outcome.add_waiter(interrupted)
    outcome.add_waiter(calls.waiter("next"))
    outcome.succeed(0, -1)
    with pytest.raises(KeyboardInterrupt):
        outcome.run_waiters()
    assert calls == ["next"]


@pytest.mark.parametrize("raised", [KeyboardInterrupt, LookupError])
def test_a_hook_that_raises_does_not_leave_the_others_asleep(
    kernel: ModuleType, monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    """Ctrl-C in ``on_waiter_error`` once ended the loop, and later waiters were never called."""

    def interrupted(_error: Exception) -> None:
        raise raised

    monkeypatch.setattr(outcome_table, "on_waiter_error", interrupted)
    outcome, calls = kernel.BatchOutcome(TP), Calls()
    outcome.add_waiter(lambda: 1 // 0)
    outcome.add_waiter(calls.waiter("next"))
    outcome.succeed(0, -1)
    with pytest.raises(raised):
        outcome.run_waiters()
    assert calls == ["next"]


def test_an_interrupt_outlasts_what_a_hook_raises(
    kernel: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If several exceptions occur, Ctrl-C is the one that is raised."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(outcome_table, "on_waiter_error", lambda _error: [].pop())
    for order in (1, -1):
        outcome = kernel.BatchOutcome(TP)
        for waiter in [interrupted, lambda: 1 // 0][::order]:
            outcome.add_waiter(waiter)
        outcome.succeed(0, -1)
        with pytest.raises(KeyboardInterrupt):
            outcome.run_waiters()


def test_only_handles_are_removed(kernel: ModuleType) -> None:
    """What is no handle is a mistake of the caller."""
    with pytest.raises((TypeError, AttributeError)):
        kernel.BatchOutcome(TP).remove_waiter(None)
