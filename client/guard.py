"""The one lock of a producer, and what happens when its holder comes back for it.

Application threads and the sender's thread take it around every call into the accumulator and the metadata.
Python can interrupt its holder in the middle of such a call: a signal handler, a ``__del__``, a collection
triggered by an allocation. If that code sends on the same producer, a plain lock would deadlock, and a
re-entrant one alone would let it into half-changed state. So the lock is re-entrant and counts its depth,
and who finds himself nested leaves the shared state alone: his record goes the way of the late ones
(``late.py``).
"""

from __future__ import annotations

import threading
from types import TracebackType

from splashdam.client.alive import AliveSet
from splashdam.model.errors import IllegalStateError

_guards: AliveSet[Guard] = AliveSet()


class Guard:
    """A re-entrant lock that knows how often its holder is inside.

    Attributes:
        lock: the lock itself; ``send`` takes it directly, which saves two Python calls per record.
        depth: how often the holder is inside. Written by the holder alone, so whoever holds ``lock`` and
            reads a depth above 0 has interrupted itself.

    The lock is taken before ``depth`` is raised, and released after it was lowered: whoever interrupts the
    holder between the two finds nothing half changed, and may go on as if he were the outermost.
    """

    __slots__ = ("__weakref__", "depth", "lock")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.depth = 0
        _guards.add(self)

    def __enter__(self) -> None:
        self.lock.acquire()
        self.depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.depth -= 1
        self.lock.release()

    def interrupted(self) -> bool:
        """Whether the caller is a signal handler or a ``__del__`` that has interrupted the holder."""
        if not self.depth:
            return False
        if not self.lock.acquire(blocking=False):
            return False
        try:
            return self.depth > 0
        finally:
            self.lock.release()


def refuse_inside_a_send(call: str) -> None:
    """Raises where a wait would never end, because the waiting thread itself keeps the sender out.

    Raises:
        IllegalStateError: the caller is a signal handler or a ``__del__`` that has interrupted a ``send``.
    """
    for guard in _guards.snapshot():
        if guard.depth and guard.interrupted():
            raise IllegalStateError(
                f"{call} would wait for ever here: this signal handler or __del__ has interrupted a send()"
            )
