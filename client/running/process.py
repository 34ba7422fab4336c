"""Living in a process: what fork, garbage collection and the interpreter's exit do to producers.

* After a fork the child's copies are foreign: the threads that would serve them do not exist there, and their
  connections are the parent's. ``fork`` hooks mark them, and close the child's copies of the sockets.
* A producer that is collected, or still open at exit, is closed with what ``exit_timeout_ms`` allows. Nothing
  is raised from there, and no thread is started once the exit has begun.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from typing import Protocol

from splashdam.client.running.alive import AliveSet
from splashdam.client.waiters import SENDER_THREADS
from splashdam.model.errors import IllegalStateError


class Closable(Protocol):
    """What this module does to a producer's core."""

    def become_foreign(self) -> None:
        """In a forked child; must not take a lock, since its holder may not exist here."""

    def begin_close_at_exit(self) -> float:
        """Takes no more records; answers how many seconds the exit may wait for what is left."""

    def finish_close_at_exit(self, timeout: float) -> None:
        """Waits that long, then gives up what is left."""


_alive: AliveSet[Closable] = AliveSet()


def keep_watch(core: Closable) -> None:
    """Has ``core`` marked in a forked child, and closed at exit if it is still there."""
    _alive.add(core)
    # Exit hooks run last in, first out. Registered anew with each producer, this one runs before that of an
    # embedded broker the producer may deliver to, which was started before.
    atexit.unregister(_close_all_at_exit)
    atexit.register(_close_all_at_exit)


def forget(core: Closable) -> None:
    """``core`` has ended."""
    _alive.discard(core)


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
