"""What fork, garbage collection, signal handlers and the interpreter's exit do to producers.

* After a fork the child's copies are foreign: the threads that would serve them do not exist there, and their
  connections are the parent's. ``fork`` hooks mark them, and close the child's copies of the sockets.
* A producer that is collected, or still open at exit, is closed with what ``exit_timeout_ms`` allows. Nothing
  is raised from there, and no thread is started once the exit has begun.
* A signal handler or a ``__del__`` may interrupt ``send`` while it holds the producer's guard. If that code
  sends on the same producer, its record is deferred (``sending/deferred.py``); waits are refused here.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from splashdam.client.waiters import SENDER_THREADS
from splashdam.model.errors import IllegalStateError
from splashdam.net.guard import Guard

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


class Living(Protocol):
    """A producer's core, as far as this module needs it."""

    def become_foreign(self) -> None:
        """In a forked child; must not take a lock, since its holder may not exist here."""

    def begin_close_at_exit(self) -> float:
        """Takes no more records; answers how many seconds the exit may wait for what is left."""

    def finish_close_at_exit(self, timeout: float) -> None:
        """Waits that long, then gives up what is left."""


_alive: AliveSet[Living] = AliveSet()
_guards: AliveSet[Guard] = AliveSet()


def keep_watch(core: Living) -> None:
    """Has ``core`` marked in a forked child, and closed at exit if it is still there."""
    _alive.add(core)
    # Exit hooks run last in, first out. Registered anew with each producer, this one runs before that of an
    # embedded broker the producer may deliver to, which was started before.
    atexit.unregister(_close_all_at_exit)
    atexit.register(_close_all_at_exit)


def forget(core: Living) -> None:
    """``core`` has ended."""
    _alive.discard(core)


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


def exiting() -> bool:
    """Whether the interpreter has begun to exit: no thread may be started any more."""
    return not threading.main_thread().is_alive()


def refuse_at_exit() -> None:
    """Raises once the exit has begun.

    Raises:
        IllegalStateError: a producer needs a thread, and the interpreter is exiting.
    """
    if exiting():
        raise IllegalStateError("a producer cannot be started while the interpreter exits")


def _close_all_at_exit() -> None:
    cores = _alive.snapshot()
    deadlines = [(core, time.monotonic() + core.begin_close_at_exit()) for core in cores]
    for core, deadline in deadlines:
        core.finish_close_at_exit(max(deadline - time.monotonic(), 0.0))


def _after_fork_in_child() -> None:
    SENDER_THREADS.forget_others()
    for core in _alive.snapshot():
        core.become_foreign()
    _alive.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
