"""Lives written as tables: which event leads where from which state, and nothing else is legal."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from splashdam.model.errors import IllegalStateError

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)
T = TypeVar("T")


class Stage(Enum):
    """The base of states and events that are looked up often: a member is hashed by its identity.

    It is there once, so that does; ``Enum`` hashes its name, in a Python call, twice for each look-up.
    """

    __hash__ = object.__hash__


def next_state(table: Mapping[tuple[S, E], T], state: S, event: E, who: object) -> T:
    """What a table of lives says of an event.

    Args:
        table: (state, event) to the next state; an absent pair is illegal.
        state: the present one.
        event: what happens.
        who: whose life it is, for the error's text: "a producer". Made into text only there.

    Raises:
        IllegalStateError: the event is not legal in this state; the text names both.
    """
    try:
        return table[state, event]
    except KeyError:
        raise IllegalStateError(f"{who} that is {state.name} cannot {event.name}") from None
