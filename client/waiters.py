"""Waits of threads, trio tasks and asyncio tasks for an event in another thread.

All three subscribe a function without arguments, which may be called from any thread, and unsubscribe it if
the wait ends early. Futures that are done never come here, so a lock or event exists only during a wait.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from splashdam.model.errors import IllegalStateError

if TYPE_CHECKING:
    import asyncio

Wake = Callable[[], None]


class Waitable(Protocol):
    """A one-time event."""

    def subscribe(self, wake: Wake) -> object | None:
        """Have ``wake`` called once when it happens; return None if it has happened already."""

    def unsubscribe(self, handle: Any) -> None:
        """Remove a subscription; one that has fired already is ignored."""


class SenderThreads:
    """The threads that run a sender. A blocking call in one of them would deadlock."""

    def __init__(self) -> None:
        # No lock: each thread changes its own entry only.
        self._count: dict[int, int] = {}

    def enter(self) -> None:
        """Register the calling thread; several senders may share one trio run."""
        ident = threading.get_ident()
        self._count[ident] = self._count.get(ident, 0) + 1

    def leave(self) -> None:
        """End an ``enter`` of the calling thread."""
        ident = threading.get_ident()
        left = self._count.pop(ident) - 1
        if left:
            self._count[ident] = left

    def here(self) -> bool:
        """Whether the calling thread runs a sender."""
        return threading.get_ident() in self._count

    def refuse(self, call: str) -> None:
        """Raise in a sender's thread.

        Raises:
            IllegalStateError: blocking here would stop the thread that delivers the records.
        """
        if self.here():
            raise IllegalStateError(
                f"{call} would wait for ever here: this is the thread that delivers records (you are in a"
                " callback, or beside an AsyncKafkaProducer). Use add_callback, or await"
            )

    def forget_others(self) -> None:
        """Forget all threads, in a forked child."""
        self._count.clear()


SENDER_THREADS = SenderThreads()


def wait_in_thread(waitable: Waitable, timeout: float | None) -> bool:
    """Block the calling thread; return False after ``timeout`` seconds (None: no limit)."""
    # One lock: a ``threading.Event`` makes two, and a queue of waiters.
    gate = threading.Lock()
    gate.acquire()
    handle = waitable.subscribe(gate.release)
    if handle is None:
        return True
    woken = False
    try:
        woken = gate.acquire(timeout=-1 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX))
    finally:
        if not woken:
            waitable.unsubscribe(handle)
    return woken


async def wait_in_trio(waitable: Waitable) -> None:
    """Wait in a trio task; limit it with trio's cancel scopes.

    The sender of the same loop reschedules the task directly: it continues once the sender's step has ended.
    What it must find decided by then: docs/decisions/futures.md, "When a waiting task continues".
    """
    from splashdam.sender.wakeup import ParkedTask  # imports trio, see _in_trio

    waiting = ParkedTask()
    handle = waitable.subscribe(waiting.wake)
    if handle is None:
        waiting.give_up()
        return
    try:
        await waiting.park()
    except BaseException:
        waitable.unsubscribe(handle)
        raise


async def wait_in_asyncio(waitable: Waitable, timeout: float | None = None) -> bool:
    """Wait in an asyncio task; return False after ``timeout`` seconds (None: no limit)."""
    import asyncio

    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()

    def resolve() -> None:
        if not woken.done():
            woken.set_result(None)

    def wake() -> None:
        with suppress(RuntimeError):  # the loop is closed, and its tasks with it
            loop.call_soon_threadsafe(resolve)

    handle = waitable.subscribe(wake)
    if handle is None:
        return True
    try:
        async with asyncio.timeout(timeout):
            await woken
    except TimeoutError:
        return False
    finally:
        waitable.unsubscribe(handle)
    return True


def wait_in_task(waitable: Waitable) -> Generator[Any, Any, None]:
    """Wait under trio or asyncio, whichever runs the calling task; for use in ``__await__``."""
    yield from (wait_in_trio(waitable) if in_trio() else wait_in_asyncio(waitable)).__await__()


def in_trio() -> bool:
    """Whether the caller is a trio task."""
    trio = sys.modules.get("trio")  # importing it costs 0.1 s, which an asyncio application need not pay here
    return trio is not None and trio.lowlevel.in_trio_task()
