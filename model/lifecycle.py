"""Lifecycles as tables: (state, event) leads to the next state; a pair that is absent is illegal."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from splashdam.model.errors import IllegalStateError

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)
T = TypeVar("T")


class Stage(Enum):
    """Base of states and events that are looked up often: members are hashed by identity.

    ``Enum.__hash__`` hashes the member's name in a Python call, twice for each look-up in a table.
    """

    __hash__ = object.__hash__


def next_state(table: Mapping[tuple[S, E], T], state: S, event: E, who: object) -> T:
    """Look up the next state in a lifecycle's table.

    Args:
        table: (state, event) to the next state; an absent pair is illegal.
        state: the present one.
        event: what happens.
        who: the owner of the lifecycle, for the error's text, for example "a producer".

    Raises:
        IllegalStateError: the event is not legal in this state; the text names both.
    """
    try:
        return table[state, event]
    except KeyError:
        raise IllegalStateError(f"{who} that is {state.name} cannot {event.name}") from None
