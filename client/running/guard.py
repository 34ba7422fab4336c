"""The one lock of a producer, and what happens when its holder comes back for it.

Application threads and the sender's thread take it around every call into the accumulator and the metadata.
Python can interrupt its holder in the middle of such a call: a signal handler, a ``__del__``, a collection
triggered by an allocation. If that code sends on the same producer, a plain lock would deadlock, and a
re-entrant one alone would let it into half-changed state. So the lock is re-entrant and knows its owner, and
who finds that he owns it already leaves the shared state alone: his record goes the way of the late ones
(``sending/late.py``).
"""

from __future__ import annotations

from splashdam.client.running.alive import AliveSet
from splashdam.model.errors import IllegalStateError
from splashdam.net.guard import Guard

_guards: AliveSet[Guard] = AliveSet()


def make_guard() -> Guard:
    """A producer's guard, which ``refuse_inside_a_send`` knows."""
    guard = Guard()
    _guards.add(guard)
    return guard


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
