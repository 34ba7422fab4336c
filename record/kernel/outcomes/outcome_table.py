"""The life of a batch, as its futures see it: states, events, and what each event does in each state.

========== ========== ========= =======
state      SUCCEED    FAIL      SPLIT
========== ========== ========= =======
PENDING    SUCCEEDED  FAILED    SPLIT
FAILED     ignored    ignored   illegal
SUCCEEDED  illegal    illegal   illegal
SPLIT      illegal    illegal   illegal
========== ========== ========= =======

A batch that failed here (it expired, the producer was closed) may still be on its way: the broker's late
answer changes nothing any more and is no mistake. Everything else would tell an application two different
things about one record. Semantics: ``ProducerBatch.done`` of the Java producer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import IntEnum, auto

from splashdam.model import lifecycle


class State(IntEnum):
    """Where a batch is in its life; the compiled twin counts on these numbers."""

    PENDING = 0
    SUCCEEDED = 1
    FAILED = 2
    SPLIT = 3


class Event(lifecycle.Stage):
    """What can happen to a batch."""

    SUCCEED = auto()
    FAIL = auto()
    SPLIT = auto()


PENDING, SUCCEEDED, FAILED, SPLIT = map(int, State)  # plain: futures compare them millions of times

TABLE: dict[tuple[State, Event], State | None] = {
    (State.PENDING, Event.SUCCEED): State.SUCCEEDED,
    (State.PENDING, Event.FAIL): State.FAILED,
    (State.PENDING, Event.SPLIT): State.SPLIT,
    (State.FAILED, Event.SUCCEED): None,
    (State.FAILED, Event.FAIL): None,
}
"""(state, event) -> next state; None = ignored; an absent pair is illegal."""


def takes(state: int, event: Event) -> bool:
    """Whether an event changes a batch that is in this state; False where it is ignored.

    Raises:
        IllegalStateError: the event is not legal in this state.
    """
    try:
        return TABLE[state, event] is not None  # type: ignore[index]  # an IntEnum's member is found by its number
    except KeyError:
        return lifecycle.next_state(TABLE, State(state), event, "a batch") is not None


def log_waiter_error(error: Exception) -> None:
    """The hook until somebody sets another: an error that nobody hears of is the worst kind."""
    logging.getLogger("splashdam.record").error("a waiter for a batch raised", exc_info=error)


on_waiter_error: Callable[[Exception], None] = log_waiter_error
"""Called with each exception that a waiter raises; ``client`` sets it to write into its own log."""


def log_callback_error(error: BaseException) -> None:
    """The hook until somebody sets another."""
    if not isinstance(error, Exception):
        raise error
    log_waiter_error(error)


on_callback_error: Callable[[BaseException], None] = log_callback_error
"""Called with what an application's callback raised; raises what has to go on to the sender."""


def _not_inside() -> bool:
    return False


def _back_to(_before: bool) -> None:
    pass


enter_callbacks: Callable[[], bool] = _not_inside
"""Called before callbacks run in this thread; ``leave_callbacks`` gets its answer when they have run."""

leave_callbacks: Callable[[bool], None] = _back_to
