"""A lock that no exception leaves taken, and that tells a thread whether it holds it.

Python runs signal handlers between two instructions of the main thread, and Ctrl-C's raises there: where a
call returns, where a function begins. From 3.14 on one such place is between a lock's ``__enter__`` and the
body of its ``with`` statement: there ``with lock:`` leaves the lock taken for ever, and every other thread
waits. So there is no ``with`` here: ``run`` holds the lock while a function runs.

Its holder may come back for it: a signal handler, a ``__del__`` or a collection in the middle of that
function. A plain lock would deadlock there, so this one is re-entrant, and knows its owner.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Guard:
    """A re-entrant lock.

    Attributes:
        acquire: the lock's own, for who cannot afford the call of ``run``; see the kernel's ``straight.py``.
        release: likewise.
        caller: number of the calling thread.
        holder: number of the thread that runs a function here, 0: none does.
    """

    __slots__ = ("__weakref__", "acquire", "caller", "holder", "release")

    def __init__(self) -> None:
        self.caller: Callable[[], int] = threading.get_ident
        self.renew()

    def renew(self) -> None:
        """In a forked child: the lock's holder may be a thread that does not exist there."""
        lock = threading.RLock()
        self.acquire: Callable[[], bool] = lock.acquire
        self.release: Callable[[], None] = lock.release
        self.holder = 0

    def interrupted(self) -> bool:
        """Whether the calling thread holds the lock already: a caller whom ``run`` has not called is then a
        signal handler or a ``__del__`` that has interrupted the holder."""
        return self.holder == self.caller()

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the function returns or raises; the calling thread alone is in here meanwhile.

        ``record/kernel/building/straight.py`` repeats this body twice: what is changed here is changed there.
        """
        me = self.caller()
        outermost = self.holder != me
        acquire, release = self.acquire, self.release
        try:
            acquire()
            self.holder = me
            return function(*args, **kwargs)
        finally:  # until `release` returns no signal is handled: nothing else is called, nothing jumps back
            if outermost and self.holder == me:
                self.holder = 0
            try:  # noqa: SIM105 (a call may be interrupted)
                release()
            except RuntimeError:  # Ctrl-C came while it waited: the lock is not its own
                pass
