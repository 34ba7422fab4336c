"""A lock that is released whatever exception is raised, and that tells a thread whether it holds it.

Python runs signal handlers between two instructions of the main thread, and that of Ctrl-C raises there:
where a call returns, or where a function begins. From Python 3.14 on, one such place is between a lock's
``__enter__`` and the body of its ``with`` statement: an exception there would leave the lock taken for ever,
and every other thread would wait. So there is no ``with`` here: ``run`` holds the lock while a function runs.

The holder may ask for the lock again: from a signal handler, a ``__del__`` or a garbage collection in the
middle of that function. A plain lock would deadlock, so this one is re-entrant and knows its owner.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ReentrantLock:
    """A re-entrant lock.

    Attributes:
        acquire: the lock's own method, for the send path, which cannot afford to call ``run``
            (``fast_path.py``).
        release: likewise.
        caller: returns the ident of the calling thread.
        holder: ident of the thread that runs a function here, 0 for none.
    """

    __slots__ = ("__weakref__", "acquire", "caller", "holder", "release")

    def __init__(self) -> None:
        self.caller: Callable[[], int] = threading.get_ident
        self.renew()

    def renew(self) -> None:
        """Replace the lock, in a forked child: its holder may be a thread that does not exist there."""
        lock = threading.RLock()
        self.acquire: Callable[[], bool] = lock.acquire
        self.release: Callable[[], None] = lock.release
        self.holder = 0

    def interrupted(self) -> bool:
        """Return whether the calling thread holds the lock already.

        Outside of ``run`` that means that a signal handler or a ``__del__`` has interrupted the holder.
        """
        return self.holder == self.caller()

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``function`` with the lock held; return its result or raise its exception.

        ``record/kernel/building/fast_path.py`` repeats this body twice: keep all three equal.
        """
        me = self.caller()
        outermost = self.holder != me
        acquire, release = self.acquire, self.release
        try:
            acquire()
            self.holder = me
            return function(*args, **kwargs)
        finally:  # up to `release` nothing is called and nothing jumps back, so no signal is handled
            if outermost and self.holder == me:
                self.holder = 0
            try:  # noqa: SIM105 (a call may be interrupted)
                release()
            except RuntimeError:  # Ctrl-C interrupted the wait in acquire(): the lock is not held
                pass
