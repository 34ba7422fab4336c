"""What verifying a log finds."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Level(Enum):
    """How bad a finding is."""

    NOTE = "note"
    ERROR = "error"


class Finding(NamedTuple):
    """One thing that verifying found.

    Attributes:
        level: an error, or merely worth knowing.
        path: of the file or directory.
        position: of the byte in it, or None.
        text: what it is.
    """

    level: Level
    path: str
    position: int | None
    text: str


def note(path: str, text: str, position: int | None = None) -> Finding:
    """Worth knowing, and no damage."""
    return Finding(Level.NOTE, path, position, text)


def error(path: str, text: str, position: int | None = None) -> Finding:
    """Damage, or something a broker would refuse."""
    return Finding(Level.ERROR, path, position, text)
