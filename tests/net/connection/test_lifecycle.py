"""The table of a connection's states."""

from __future__ import annotations

from splashdam.net.connection.connection import TRANSITIONS, ConnectionEvent, ConnectionState


def test_requests_pass_open_connections_alone() -> None:
    """Nothing is submitted before the run and after the end."""
    able = [state for state, event in TRANSITIONS if event is ConnectionEvent.SUBMIT]
    assert able == [ConnectionState.OPEN]


def test_closing_is_final() -> None:
    """Nothing leads out of CLOSED, and every state can be closed."""
    assert all(
        after is ConnectionState.CLOSED
        for (before, _), after in TRANSITIONS.items()
        if before is ConnectionState.CLOSED
    )
    assert all((state, ConnectionEvent.CLOSE) in TRANSITIONS for state in ConnectionState)
