"""What fork, garbage collection, signal handlers and the interpreter's exit do to producers.

* After a fork the child's copies are foreign: the threads that would serve them do not exist there, and their
  connections are the parent's. ``fork`` hooks mark them, and close the child's copies of the sockets.
* A producer that is collected, or still open at exit, is closed with what ``exit_timeout_ms`` allows. Nothing
  is raised from there, and no thread is started once the exit has begun. One that cannot be closed at exit is
  logged, and the others are closed all the same.
* A signal handler or a ``__del__`` may interrupt ``send`` while it holds the producer's guard. If that code
  sends on the same producer, its record is deferred (``sending/deferred_sends.py``); waits are refused here.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from splashdam.client.waiters import SENDER_THREADS
from splashdam.model.alive import AliveSet
from splashdam.model.errors import IllegalStateError
from splashdam.model.log_text import fields
from splashdam.model.views.inspected import PRODUCERS, Inspected
from splashdam.net.reentrant_lock import ReentrantLock

logger = logging.getLogger("splashdam.client")


class Living(Inspected, Protocol):
    """A producer's core, as far as this module needs it."""

    @property
    def client_id(self) -> str:
        """Names the producer in logs."""

    def become_foreign(self) -> None:
        """In a forked child; must not take a lock, since its holder may not exist here."""

    def begin_close_at_exit(self) -> float:
        """Take no more records; return how many seconds the exit may wait for the rest."""

    def finish_close_at_exit(self, timeout: float) -> None:
        """Wait that long, then fail what is left."""


_alive: AliveSet[Living] = AliveSet()
_guards: AliveSet[ReentrantLock] = AliveSet()


def keep_watch(core: Living) -> None:
    """Have ``core`` marked as foreign in a forked child, and closed at exit."""
    _alive.add(core)
    PRODUCERS.add(core)
    # Exit hooks run last in, first out. Registered anew with each producer, this one runs before that of an
    # embedded broker the producer may deliver to, which was started before.
    atexit.unregister(_close_all_at_exit)
    atexit.register(_close_all_at_exit)


def forget(core: Living) -> None:
    """Stop watching a core that has ended."""
    _alive.discard(core)
    PRODUCERS.discard(core)


def make_guard() -> ReentrantLock:
    """Make a producer's guard, known to ``refuse_inside_a_send``."""
    guard = ReentrantLock()
    _guards.add(guard)
    return guard


def refuse_inside_a_send(call: str) -> None:
    """Raise if a wait would never end because the waiting thread itself holds a producer's guard.

    Raises:
        IllegalStateError: the caller is a signal handler or a ``__del__`` that has interrupted a ``send``.
    """
    for guard in _guards.snapshot():
        if guard.interrupted():
            raise IllegalStateError(
                f"{call} would wait for ever here: this signal handler or __del__ has interrupted a send()"
            )


def exiting() -> bool:
    """Whether the interpreter is exiting, so that no thread may be started."""
    # ``sys.is_finalizing()`` is true only after the exit hooks; this is so before they run.
    return not threading.main_thread().is_alive()


def refuse_at_exit() -> None:
    """Raise if the interpreter is exiting.

    Raises:
        IllegalStateError: a producer needs a thread, and the interpreter is exiting.
    """
    if exiting():
        raise IllegalStateError("a producer cannot be started while the interpreter exits")


def _close_all_at_exit() -> None:
    # All of them begin to close before the first one is waited for.
    deadlines = []
    for core in _alive.snapshot():
        with _logged(core):
            deadlines.append((core, time.monotonic() + core.begin_close_at_exit()))
    for core, deadline in deadlines:
        with _logged(core):
            core.finish_close_at_exit(max(deadline - time.monotonic(), 0.0))


@contextmanager
def _logged(core: Living) -> Iterator[None]:
    """Log the error of a producer that cannot be closed: the others have their turn all the same."""
    try:
        yield
    except Exception as error:
        _report(core.client_id, error)


def _report(client_id: str, error: Exception) -> None:
    logger.error(
        "%s: the exit of the interpreter could not close the producer: %s: %s."
        " Its undelivered records are lost. Call close() or use `with`",
        client_id,
        type(error).__name__,
        error,
        extra=fields(client_id=client_id, error=type(error).__name__),
    )


def _after_fork_in_child() -> None:
    SENDER_THREADS.forget_others()
    for core in _alive.snapshot():
        core.become_foreign()
    _alive.clear()
    PRODUCERS.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
