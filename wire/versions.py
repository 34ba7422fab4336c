"""Ranges of protocol versions, written as Kafka's schemas write them: ``"0+"``, ``"3-11"``, ``"0"``."""

from __future__ import annotations

from typing import NamedTuple

_NEWEST = 32_767  # versions are int16 on the wire


class Versions(NamedTuple):
    """An inclusive range of versions; empty where ``last`` is below ``first``."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Reads ``"3+"``, ``"3-11"``, ``"3"`` or ``"none"``.

        Raises:
            ValueError: the text is none of these.
        """
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), _NEWEST)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        if self.last < self.first:
            return "none"
        if self.last == _NEWEST:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


NO_VERSIONS = Versions(0, -1)
