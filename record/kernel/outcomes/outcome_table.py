"""The lifecycle of a batch as its futures see it: states, events, and what each event does in each state.

========== ========== ========= =======
state      SUCCEED    FAIL      SPLIT
========== ========== ========= =======
PENDING    SUCCEEDED  FAILED    SPLIT
FAILED     ignored    ignored   illegal
SUCCEEDED  illegal    illegal   illegal
SPLIT      illegal    illegal   illegal
========== ========== ========= =======

A batch that failed here (it expired, or the producer was closed) may still be in flight: the broker's late
response is ignored, and is no error. Any other second event would report two different results for one
record.
Semantics: the Java producer's ``ProducerBatch.done``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import IntEnum, auto

from splashdam.model import lifecycle


class State(IntEnum):
    """State of a batch; the compiled twin uses these numbers."""

    PENDING = 0
    SUCCEEDED = 1
    FAILED = 2
    SPLIT = 3


class Event(lifecycle.Stage):
    SUCCEED = auto()
    FAIL = auto()
    SPLIT = auto()


PENDING, SUCCEEDED, FAILED, SPLIT = map(int, State)  # plain ints: futures compare them millions of times

TABLE: dict[tuple[State, Event], State | None] = {
    (State.PENDING, Event.SUCCEED): State.SUCCEEDED,
    (State.PENDING, Event.FAIL): State.FAILED,
    (State.PENDING, Event.SPLIT): State.SPLIT,
    (State.FAILED, Event.SUCCEED): None,
    (State.FAILED, Event.FAIL): None,
}
"""(state, event) -> next state; None = ignored; an absent pair is illegal."""


def takes(state: int, event: Event) -> bool:
    """Return whether an event changes a batch in this state; False if it is ignored.

    Raises:
        IllegalStateError: the event is not legal in this state.
    """
    try:
        return TABLE[state, event] is not None  # type: ignore[index]  # an IntEnum's member is found by its number
    except KeyError:
        return lifecycle.next_state(TABLE, State(state), event, "a batch") is not None


def log_waiter_error(error: Exception) -> None:
    """The default hook: log the error, so that it is not lost."""
    logging.getLogger("splashdam.record").error("a batch's waiter raised an exception", exc_info=error)


on_waiter_error: Callable[[Exception], None] = log_waiter_error
"""Called with each exception of a waiter; ``client`` sets it to its own log."""


def log_callback_error(error: BaseException) -> None:
    """The default hook: log exceptions, raise ``KeyboardInterrupt`` and the like."""
    if not isinstance(error, Exception):
        raise error
    log_waiter_error(error)


on_callback_error: Callable[[BaseException], None] = log_callback_error
"""Called with the exception of an application's callback; raises those that must reach the sender."""


def _not_inside() -> bool:
    return False


def _back_to(_before: bool) -> None:
    pass


enter_callbacks: Callable[[], bool] = _not_inside
"""Called before callbacks run in this thread; ``leave_callbacks`` gets its result afterwards."""

leave_callbacks: Callable[[bool], None] = _back_to
