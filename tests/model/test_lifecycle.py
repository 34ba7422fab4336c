"""Lives as tables."""

from __future__ import annotations

from enum import Enum, auto

import pytest

from splashdam.model.errors import IllegalStateError
from splashdam.model.lifecycle import next_state


class Door(Enum):
    OPEN = auto()
    SHUT = auto()


class Deed(Enum):
    PUSH = auto()
    PULL = auto()


TABLE: dict[tuple[Door, Deed], Door | None] = {
    (Door.OPEN, Deed.PUSH): Door.SHUT,
    (Door.SHUT, Deed.PUSH): None,
}


def test_what_the_table_says() -> None:
    """The next state is the table's, None included."""
    assert next_state(TABLE, Door.OPEN, Deed.PUSH, "a door") is Door.SHUT
    assert next_state(TABLE, Door.SHUT, Deed.PUSH, "a door") is None


def test_what_the_table_lacks() -> None:
    """An absent pair is illegal, and the error names whose life, state and event."""
    with pytest.raises(IllegalStateError, match=r"^a door that is SHUT cannot PULL$") as caught:
        next_state(TABLE, Door.SHUT, Deed.PULL, "a door")
    assert caught.value.__cause__ is None
