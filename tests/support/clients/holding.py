"""A guard that is held while a test does something else, as if a ``send`` had been interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from splashdam.net.guard import Guard


@contextmanager
def holding(guard: Guard) -> Iterator[None]:
    """The block is what ``guard.run`` would run."""
    before = guard.holder
    guard.acquire()
    guard.holder = guard.caller()
    try:
        yield
    finally:
        guard.holder = before
        guard.release()
