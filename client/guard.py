"""The one lock of a producer, and what happens when its holder comes back for it.

Application threads and the sender's thread take it around every call into the accumulator and the metadata.
Python can interrupt its holder in the middle of such a call: a signal handler, a ``__del__``, a collection
triggered by an allocation. If that code sends on the same producer, a plain lock would deadlock, and a
re-entrant one alone would let it into half-changed state. So the lock is re-entrant and knows its owner, and
who finds that he owns it already leaves the shared state alone: his record goes the way of the late ones
(``late.py``).
"""

from __future__ import annotations

import threading

from splashdam.client.alive import AliveSet
from splashdam.model.errors import IllegalStateError
from splashdam.record.straight import OwnedLock

_guards: AliveSet[Guard] = AliveSet()


class Guard:
    """A lock that tells whether its holder has interrupted itself.

    Attributes:
        lock: the lock itself, for ``with guard.lock:``. This class has no ``__enter__`` of its own: Ctrl-C
            strikes where Python code begins or a call returns, there too, and would leave the lock taken for
            ever. Between a lock written in C and the body of its ``with`` statement it does not.
    """

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.renew()
        _guards.add(self)

    def renew(self) -> None:
        """In a forked child: the lock's holder may be a thread that does not exist there."""
        self.lock: OwnedLock = threading.RLock()  # type: ignore[assignment]  # typeshed has no _is_owned

    def interrupted(self) -> bool:
        """Whether the caller, who has not taken it himself, is a signal handler or a ``__del__`` that has
        interrupted the holder."""
        return self.lock._is_owned()


def refuse_inside_a_send(call: str) -> None:
    """Raises where a wait would never end, because the waiting thread itself keeps the sender out.

    Raises:
        IllegalStateError: the caller is a signal handler or a ``__del__`` that has interrupted a ``send``.
    """
    for guard in _guards.snapshot():
        if guard.interrupted():
            raise IllegalStateError(
                f"{call} would wait for ever here: this signal handler or __del__ has interrupted a send()"
            )
