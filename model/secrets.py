"""Passwords, keys and tokens as strings that do not print."""

from __future__ import annotations

from typing import Self

MASK = "[hidden]"


class Secret(str):
    """A string that prints as ``[hidden]``; ``encode()``, ``==`` and slices use the text itself.

    So a configuration that contains one can be printed, logged and quoted in errors. Pickling keeps the text.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        return text if isinstance(text, cls) else super().__new__(cls, text)  # str() of a Secret is the mask

    def __repr__(self) -> str:
        return f"'{MASK}'"

    def __str__(self) -> str:
        return MASK

    def __format__(self, _specification: str) -> str:
        return MASK


def secret_or_none(value: object) -> object:
    """Wrap a ``str`` as a ``Secret``; return anything else unchanged, for a later check to reject."""
    return Secret(value) if type(value) is str else value
