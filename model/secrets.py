"""Texts that nobody may see: passwords, keys, tokens."""

from __future__ import annotations

from typing import Self

MASK = "[hidden]"


class Secret(str):
    """A text that prints as ``[hidden]`` and is itself for those who need it: ``encode()``, ``==``, slices.

    So a configuration that holds one can be printed, logged and put into an error's text. It pickles as what
    it is.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        return text if isinstance(text, cls) else super().__new__(cls, text)  # str() of one is the mask

    def __repr__(self) -> str:
        return f"'{MASK}'"

    def __str__(self) -> str:
        return MASK

    def __format__(self, _specification: str) -> str:
        return MASK


def secret_or_none(value: object) -> object:
    """A text as a ``Secret``; anything else as it is, for a check to refuse."""
    return Secret(value) if type(value) is str else value
