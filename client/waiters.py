"""How a thread, a trio task and an asyncio task wait for something another thread does.

All three work alike: a function without arguments is given to whoever will be done (``subscribe``), it may be
called from any thread, and it is taken back (``unsubscribe``) when the wait ends early. Futures that are done
never come here, so a waiting primitive exists only where someone really waits.
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
    """Something that will be done once."""

    def subscribe(self, wake: Wake) -> object | None:
        """Has ``wake`` called once when it is done; ``None``: it is done already and ``wake`` is not kept."""

    def unsubscribe(self, handle: Any) -> None:
        """Takes back a subscription; one that has fired already is ignored."""


class SenderThreads:
    """The threads that run a sender. A call that blocks one of them would wait for itself."""

    def __init__(self) -> None:
        self._count: dict[int, int] = {}

    def enter(self) -> None:
        """The calling thread starts to run a sender; several may share one trio run."""
        ident = threading.get_ident()
        self._count[ident] = self._count.get(ident, 0) + 1

    def leave(self) -> None:
        """The calling thread has finished running a sender."""
        ident = threading.get_ident()
        left = self._count.pop(ident) - 1
        if left:
            self._count[ident] = left

    def here(self) -> bool:
        """Whether the calling thread runs a sender."""
        return threading.get_ident() in self._count

    def refuse(self, call: str) -> None:
        """Raises in a sender's thread.

        Raises:
            IllegalStateError: blocking here would stop the very thread that is waited for.
        """
        if self.here():
            raise IllegalStateError(
                f"{call} would wait for ever here: this is the thread that delivers records (you are in a"
                " callback, or beside an AsyncKafkaProducer). Use add_callback, or await"
            )

    def forget_others(self) -> None:
        """In a forked child: the threads of the parent do not exist here."""
        self._count.clear()


SENDER_THREADS = SenderThreads()


def wait_in_thread(waitable: Waitable, timeout: float | None) -> bool:
    """Blocks the calling thread; False when ``timeout`` seconds have passed first (``None``: no limit)."""
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
    """Waits in a trio task, to be limited with trio's cancel scopes."""
    import trio

    token = trio.lowlevel.current_trio_token()
    event = trio.Event()

    def wake() -> None:
        with suppress(trio.RunFinishedError):  # the loop is gone, and with it everyone who waited in it
            token.run_sync_soon(event.set)

    handle = waitable.subscribe(wake)
    if handle is None:
        return
    try:
        await event.wait()
    finally:
        waitable.unsubscribe(handle)


async def wait_in_asyncio(waitable: Waitable) -> None:
    """Waits in an asyncio task, to be limited with ``asyncio.timeout`` or ``wait_for``."""
    import asyncio

    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()

    def resolve() -> None:
        if not woken.done():
            woken.set_result(None)

    def wake() -> None:
        with suppress(RuntimeError):  # the loop is closed, and with it everyone who waited in it
            loop.call_soon_threadsafe(resolve)

    handle = waitable.subscribe(wake)
    if handle is None:
        return
    try:
        await woken
    finally:
        waitable.unsubscribe(handle)


def wait_in_task(waitable: Waitable) -> Generator[Any, Any, None]:
    """Waits in whichever of trio and asyncio runs the calling task; for use in ``__await__``."""
    wait = wait_in_trio if _in_trio() else wait_in_asyncio
    return (yield from wait(waitable).__await__())


def _in_trio() -> bool:
    trio = sys.modules.get("trio")  # importing it costs 0.1 s, which an asyncio application need not pay here
    return trio is not None and trio.lowlevel.in_trio_task()
