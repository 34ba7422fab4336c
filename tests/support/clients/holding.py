"""A guard that is held while a test does something else, as if a ``send`` had been interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from splashdam.net.reentrant_lock import ReentrantLock


@contextmanager
def holding(guard: ReentrantLock) -> Iterator[None]:
    """The block is what ``guard.run`` would run."""
    before = guard.holder
    guard.acquire()
    guard.holder = guard.caller()
    try:
        yield
    finally:
        guard.holder = before
        guard.release()
