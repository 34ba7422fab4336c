"""Objects that are alive: a set of weak references."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class AliveSet(Generic[T]):
    """A set of weak references for threads, signal handlers and ``__del__``, without a lock.

    A ``WeakSet`` will not do: it is iterated in Python, and raises if a member is added meanwhile. Here each
    change and the snapshot are a single dict operation, which the GIL makes atomic.
    """

    def __init__(self) -> None:
        self._references: dict[int, weakref.ref[T]] = {}

    def add(self, member: T) -> None:
        """Add a complete object: other threads may find it at once."""
        number = id(member)
        self._references[number] = weakref.ref(member, _forgetter(self._references, number))

    def discard(self, member: T) -> None:
        """Remove a member, if it is there."""
        self._references.pop(id(member), None)

    def clear(self) -> None:
        """Remove all members."""
        self._references.clear()

    def snapshot(self) -> list[T]:
        """The members that are alive now."""
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
