"""The lifecycle of a producer as a table.

========= ======= ======= ======== =======
state     start   close   finish   fork
========= ======= ======= ======== =======
NEW       RUNNING CLOSED  illegal  FOREIGN
RUNNING   illegal CLOSING CLOSED   FOREIGN
CLOSING   illegal CLOSING CLOSED   FOREIGN
CLOSED    illegal CLOSED  CLOSED   FOREIGN
FOREIGN   illegal FOREIGN FOREIGN  FOREIGN
========= ======= ======= ======== =======

``close`` is called by the application, ``finish`` is the end of the sender's loop (also after a crash), and
``fork`` happens in a forked child.
"""

from __future__ import annotations

from enum import Enum, auto


class State(Enum):
    """The state of a producer."""

    NEW = auto()
    """Constructed; its loop does not run yet."""
    RUNNING = auto()
    CLOSING = auto()
    """Takes no more records; queued ones are still delivered."""
    CLOSED = auto()
    """Its loop has ended, and every future is done."""
    FOREIGN = auto()
    """A copy in a forked child: loop, connections and records belong to the parent."""


class Event(Enum):
    """Events of a producer."""

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
