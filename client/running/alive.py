"""A set of objects that are alive, to which threads, signal handlers and ``__del__`` may come at any time."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class AliveSet(Generic[T]):
    """Refers weakly to its members. No lock: its methods may interrupt each other in one thread, too.

    A ``WeakSet`` is no such thing: it is iterated in Python, so whoever adds meanwhile makes that raise. Here
    every change and the snapshot are one operation of a dict, which the GIL keeps whole.
    """

    def __init__(self) -> None:
        self._references: dict[int, weakref.ref[T]] = {}

    def add(self, member: T) -> None:
        """Adds an object that is complete: others may find it at once."""
        number = id(member)
        self._references[number] = weakref.ref(member, _forgetter(self._references, number))

    def discard(self, member: T) -> None:
        """Forgets it, if it is there."""
        self._references.pop(id(member), None)

    def clear(self) -> None:
        """Forgets all."""
        self._references.clear()

    def snapshot(self) -> list[T]:
        """Those that are alive now."""
        members = []
        for reference in list(self._references.values()):
            member = reference()
            if member is not None:
                members.append(member)
        return members


def _forgetter(references: dict[int, weakref.ref[T]], number: int) -> Callable[[weakref.ref[T]], None]:
    def forget(_reference: weakref.ref[T]) -> None:
        references.pop(number, None)

    return forget
