"""The life of a connection: its states, and which event is legal in which."""

from __future__ import annotations

from enum import Enum

from splashdam.model.errors import IllegalStateError


class ConnectionState(Enum):
    """Where a connection is in its life."""

    NEW = "new"
    OPEN = "open"
    CLOSED = "closed"


class ConnectionEvent(Enum):
    """What can happen to a connection."""

    RUN = "run"
    SUBMIT = "submit"
    CLOSE = "close"


TRANSITIONS: dict[tuple[ConnectionState, ConnectionEvent], ConnectionState] = {
    (ConnectionState.NEW, ConnectionEvent.RUN): ConnectionState.OPEN,
    (ConnectionState.NEW, ConnectionEvent.CLOSE): ConnectionState.CLOSED,
    (ConnectionState.OPEN, ConnectionEvent.SUBMIT): ConnectionState.OPEN,
    (ConnectionState.OPEN, ConnectionEvent.CLOSE): ConnectionState.CLOSED,
    (ConnectionState.CLOSED, ConnectionEvent.CLOSE): ConnectionState.CLOSED,
}


def next_state(state: ConnectionState, event: ConnectionEvent, who: str) -> ConnectionState:
    """The state after an event.

    Raises:
        IllegalStateError: the event is not legal in this state; the text names both.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalStateError(
            f"connection to {who}: {event.value} is not legal in state {state.value}"
        ) from None
