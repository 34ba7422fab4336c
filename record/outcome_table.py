"""The life of a batch, as its futures see it: states, events, and what each event does in each state.

========== ========== ========= =======
state      succeed    fail      split
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

from collections.abc import Callable

from splashdam.model.errors import IllegalStateError

PENDING, SUCCEEDED, FAILED, SPLIT = range(4)
STATE_NAMES = ("PENDING", "SUCCEEDED", "FAILED", "SPLIT")

TABLE: dict[tuple[int, str], int | None] = {
    (PENDING, "succeed"): SUCCEEDED,
    (PENDING, "fail"): FAILED,
    (PENDING, "split"): SPLIT,
    (FAILED, "succeed"): None,
    (FAILED, "fail"): None,
}
"""(state, event) -> next state; None = ignored; an absent pair is illegal."""


def next_state(state: int, event: str) -> int | None:
    """The state an event leads to, None where the event is ignored.

    Raises:
        IllegalStateError: the event is not legal in this state.
    """
    try:
        return TABLE[state, event]
    except KeyError:
        raise IllegalStateError(f"{event!r} is not legal for a batch that is {STATE_NAMES[state]}") from None


def _ignore(_error: Exception) -> None:
    """The hook until somebody sets one."""


on_waiter_error: Callable[[Exception], None] = _ignore
"""Called with each exception that a waiter raises; ``client`` sets it to write into its log."""
