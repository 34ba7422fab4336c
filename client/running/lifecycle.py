"""The life of a producer as a table.

========= ======= ======= ======== =======
state     start   close   finish   fork
========= ======= ======= ======== =======
NEW       RUNNING CLOSED  illegal  FOREIGN
RUNNING   illegal CLOSING CLOSED   FOREIGN
CLOSING   illegal CLOSING CLOSED   FOREIGN
CLOSED    illegal CLOSED  CLOSED   FOREIGN
FOREIGN   illegal FOREIGN FOREIGN  FOREIGN
========= ======= ======= ======== =======

``close`` is the application's wish, ``finish`` the end of the sender's loop (also when it crashed), ``fork``
what happens to a producer in a forked child.
"""

from __future__ import annotations

from enum import Enum, auto


class State(Enum):
    """Where a producer is in its life."""

    NEW = auto()
    """Made; its loop does not run yet."""
    RUNNING = auto()
    CLOSING = auto()
    """Takes no more records; what it has is still delivered."""
    CLOSED = auto()
    """Its loop has ended, and every future is done."""
    FOREIGN = auto()
    """A copy in a forked child: the loop, the connections and the records are the parent's."""


class Event(Enum):
    """What can happen to a producer."""

    START = auto()
    CLOSE = auto()
    FINISH = auto()
    FORK = auto()


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.NEW, Event.START): State.RUNNING,
    (State.NEW, Event.CLOSE): State.CLOSED,
    (State.RUNNING, Event.CLOSE): State.CLOSING,
    (State.RUNNING, Event.FINISH): State.CLOSED,
    (State.CLOSING, Event.CLOSE): State.CLOSING,
    (State.CLOSING, Event.FINISH): State.CLOSED,
    (State.CLOSED, Event.CLOSE): State.CLOSED,
    (State.CLOSED, Event.FINISH): State.CLOSED,
    (State.FOREIGN, Event.CLOSE): State.FOREIGN,
    (State.FOREIGN, Event.FINISH): State.FOREIGN,
    **{(state, Event.FORK): State.FOREIGN for state in State},
}
