"""How many examples hypothesis draws: everybody's run draws a part of them, `make test-rest` all."""

from __future__ import annotations

from hypothesis import settings

_ALL = 100


def examples(number: int) -> int:
    """Return the part of so many examples that hypothesis' profile draws."""
    part: int = settings.default.max_examples  # of 100 in the profile "thorough"
    return number * part // _ALL
