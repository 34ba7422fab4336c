"""The table of a connection's states."""

from __future__ import annotations

from itertools import product

import pytest

from splashdam.model.errors import IllegalStateError
from splashdam.net.lifecycle import TRANSITIONS, ConnectionEvent, ConnectionState, next_state


@pytest.mark.parametrize(("state", "event"), list(product(ConnectionState, ConnectionEvent)))
def test_every_pair(state: ConnectionState, event: ConnectionEvent) -> None:
    """A legal event leads to its state; an illegal one names state and event."""
    if (state, event) in TRANSITIONS:
        assert next_state(state, event, "x") is TRANSITIONS[state, event]
    else:
        with pytest.raises(IllegalStateError, match=f"{event.value} is not legal in state {state.value}"):
            next_state(state, event, "x")


def test_closing_is_final() -> None:
    """Nothing leads out of CLOSED, and every state can be closed."""
    assert all(
        after is ConnectionState.CLOSED
        for (before, _), after in TRANSITIONS.items()
        if before is ConnectionState.CLOSED
    )
    assert all((state, ConnectionEvent.CLOSE) in TRANSITIONS for state in ConnectionState)
