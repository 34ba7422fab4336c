"""The memory budget: first come, first served, and every byte given back once."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.running.examples import examples

from splashdam.accumulator.memory import (
    TICKET_TRANSITIONS,
    MemoryBudget,
    MemoryTicket,
    TicketEvent,
    TicketState,
)
from splashdam.model.errors import IllegalStateError


def test_line_is_first_come_first_served():
    """A later, smaller request does not overtake; its own turn comes."""
    budget = MemoryBudget(100)
    assert budget.take(80)
    large, small = budget.queue(50), budget.queue(10)
    assert not budget.take(5)
    assert (large.granted_bytes, budget.free_bytes, budget.waiting) == (20, 0, 2)
    budget.release(30)
    assert large.ready
    assert not small.ready
    budget.release(50)
    assert small.ready
    assert (budget.free_bytes, budget.waiting) == (40, 0)
    budget.release(budget.spend(large))
    budget.release(budget.spend(small))
    assert budget.free_bytes == 100


def test_on_ready_is_called_once():
    """The waiter hears of its grant, and of nothing after that."""
    budget = MemoryBudget(10)
    budget.take(10)
    calls = []
    ticket = budget.queue(10)
    ticket.on_ready = lambda: calls.append(ticket.state)
    budget.release(4)
    assert calls == []
    budget.release(6)
    budget.close()
    assert calls == [TicketState.READY]


def test_cancel_gives_a_partial_grant_to_the_next():
    """An interrupted wait returns what it had; the one behind gets it."""
    budget = MemoryBudget(10)
    budget.take(8)
    first, second = budget.queue(10), budget.queue(2)
    budget.cancel(first)
    assert second.ready
    budget.cancel(first)
    budget.cancel(second)
    assert budget.free_bytes == 2


def test_close_sends_everybody_away():
    """Closing wakes all waiters; what was granted to them in part is free again."""
    budget = MemoryBudget(10)
    budget.take(6)
    called = []
    tickets = [budget.queue(8), budget.queue(8)]
    for ticket in tickets:
        ticket.on_ready = lambda ticket=ticket: called.append(ticket)
    budget.close()
    assert called == tickets
    assert all(ticket.ready and ticket.state is TicketState.REFUSED for ticket in tickets)
    assert (budget.free_bytes, budget.waiting) == (4, 0)


@pytest.mark.parametrize("state", TicketState)
@pytest.mark.parametrize("event", TicketEvent)
def test_illegal_events_name_state_and_event(state, event):
    """Every pair that is not in the table raises and changes nothing."""
    ticket = MemoryTicket(1)
    ticket.state = state
    if (state, event) in TICKET_TRANSITIONS:
        ticket.advance(event)
        assert ticket.state is TICKET_TRANSITIONS[state, event]
    else:
        with pytest.raises(IllegalStateError, match=f"{state.name} cannot {event.name}"):
            ticket.advance(event)
        assert ticket.state is state


@pytest.mark.parametrize("close", [True, False])
def test_waiter_that_raises_does_not_silence_the_others(close):
    """All waiters are called, and then the first exception is raised."""
    budget = MemoryBudget(10)
    budget.take(10)
    told = []
    for number in range(3):

        def on_ready(number=number):
            told.append(number)
            if number < 2:
                raise KeyboardInterrupt(str(number))

        budget.queue(3).on_ready = on_ready
    with pytest.raises(KeyboardInterrupt, match="0"):
        budget.close() if close else budget.release(10)
    assert told == [0, 1, 2]
    assert budget.waiting == 0


class BudgetMachine(RuleBasedStateMachine):
    """Any mix of taking, waiting, spending, cancelling and releasing."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = MemoryBudget(1000)
        self.taken: list[int] = []
        self.line: deque[MemoryTicket] = deque()
        self.ready: list[MemoryTicket] = []

    @rule(size=st.integers(1, 600))
    def acquire(self, size: int) -> None:
        if self.budget.take(size):
            self.taken.append(size)
        else:
            ticket = self.budget.queue(size)
            ticket.on_ready = lambda: self.ready.append(ticket)
            self.line.append(ticket)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.budget.release(self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1))))

    @precondition(lambda self: self.ready)
    @rule()
    def spend(self) -> None:
        ticket = self.ready.pop(0)
        self.taken.append(self.budget.spend(ticket))

    @precondition(lambda self: self.line)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        ticket = self.line[data.draw(st.integers(0, len(self.line) - 1))]
        if ticket.state is not TicketState.SPENT:
            self.budget.cancel(ticket)
            if ticket in self.ready:
                self.ready.remove(ticket)

    @invariant()
    def nobody_is_skipped(self) -> None:
        """Grants come in order: no ready ticket stands behind a waiting one."""
        waiting = [ticket.state is TicketState.WAITING for ticket in self.line]
        live = [
            is_waiting
            for is_waiting, ticket in zip(waiting, self.line, strict=True)
            if ticket.state in (TicketState.WAITING, TicketState.READY)
        ]
        assert live == sorted(live)
        assert self.budget.waiting == sum(waiting)

    @invariant()
    def every_byte_is_accounted_for(self) -> None:
        """Free, granted and taken bytes always add up to the total."""
        granted = sum(ticket.granted_bytes for ticket in self.line)
        assert self.budget.free_bytes + granted + sum(self.taken) == 1000
        assert self.budget.free_bytes == 0 or self.budget.waiting == 0


TestBudget = BudgetMachine.TestCase
TestBudget.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


def test_what_is_owed_is_given_to_nobody():
    """While the budget is in debt, released memory pays the debt.

    A waiter gets only what is released beyond it.
    """
    budget = MemoryBudget(100)
    budget.owe(130)
    ticket = budget.queue(20)
    assert not budget.take(1)
    assert (budget.free_bytes, ticket.granted_bytes) == (-30, 0)
    budget.release(45)
    assert (budget.free_bytes, ticket.granted_bytes) == (0, 15)
    budget.release(85)
    assert (budget.free_bytes, ticket.granted_bytes, ticket.ready) == (80, 20, True)
