"""The life of a connection: its states, and which event is legal in which."""

from __future__ import annotations

from enum import auto

from splashdam.model.lifecycle import Stage


class ConnectionState(Stage):
    """Where a connection is in its life."""

    NEW = auto()
    OPEN = auto()
    CLOSED = auto()


class ConnectionEvent(Stage):
    """What can happen to a connection."""

    RUN = auto()
    SUBMIT = auto()
    CLOSE = auto()


TRANSITIONS: dict[tuple[ConnectionState, ConnectionEvent], ConnectionState] = {
    (ConnectionState.NEW, ConnectionEvent.RUN): ConnectionState.OPEN,
    (ConnectionState.NEW, ConnectionEvent.CLOSE): ConnectionState.CLOSED,
    (ConnectionState.OPEN, ConnectionEvent.SUBMIT): ConnectionState.OPEN,
    (ConnectionState.OPEN, ConnectionEvent.CLOSE): ConnectionState.CLOSED,
    (ConnectionState.CLOSED, ConnectionEvent.CLOSE): ConnectionState.CLOSED,
}
