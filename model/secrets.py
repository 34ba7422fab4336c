"""Texts that nobody may see: passwords, keys, tokens."""

from __future__ import annotations

MASK = "[hidden]"


class Secret(str):
    """A text that prints as ``[hidden]`` and is itself for those who need it: ``encode()``, ``==``, slices.

    So a configuration that holds one can be printed, logged and put into an error's text. It pickles as what
    it is.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{MASK}'"

    def __str__(self) -> str:
        return MASK

    def __format__(self, _specification: str) -> str:
        return MASK


def secret_or_none(value: object) -> object:
    """A text as a ``Secret``; anything else as it is, for a check to refuse."""
    return Secret(value) if type(value) is str else value
