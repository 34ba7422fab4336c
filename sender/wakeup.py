"""How threads wake each other: the sender (``Wakeup``), the application behind it (``HandOver``), and whoever
waits for something that happens once (``Latch``).
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import trio

HAND_OVER_BYTES = 1024 * 1024
"""So much may be reserved for new batches between two drains of the sender before somebody waits for one.

What a request holds in the end. Half of it costs throughput, four times of it changes nothing any more."""

HAND_OVER_BATCHES = 4
"""At least so many full batches, or with large ones a bulk call would wait after each."""

LONGEST_WAIT_SECONDS = 0.001
"""A drain is over before. It is only a hand-over, not back-pressure: that is ``max_block_ms``."""


class Wakeup:
    """Wakes one sleeping task from any thread.

    Both sides write their own flag before they read the other's, which the GIL keeps in this order: either
    the sleeper sees that it was signalled and does not sleep, or the waker sees that it is armed and fires. A
    wake while nobody sleeps is kept for the next `sleep`.

    The sleeper waits for a descriptor of its own (an eventfd; elsewhere a pipe). To write to it takes a
    twentieth of what ``TrioToken.run_sync_soon`` does, and the sleeper runs in the first pass of its loop,
    not in the third. `close` gives it back; a thread that is just writing to it keeps it open until it has
    written, so that a late wake never meets a descriptor that is somebody else's by then.
    """

    def __init__(self) -> None:
        self._signalled = False
        self._armed = False
        self._rung = False
        self._ends = _NONE

    def wake(self) -> None:
        """From any thread or task; returns at once and never raises, also after `close`."""
        self._signalled = True
        if self._armed:
            self._armed = False
            ends = self._ends  # kept open by this name until it is written to, whoever closes it meanwhile
            try:  # noqa: SIM105 (suppress calls Python code; a Ctrl-C there would lose this wake and all later ones)
                os.write(ends.writer, _ONE)
            except OSError:
                pass  # a full pipe, which wakes anyway; or it was closed, and nobody sleeps

    async def sleep(self) -> None:
        """Sleeps until somebody wakes; not at all if somebody has woken already."""
        if self._ends is _NONE:
            self._ends = _open()
        if self._rung:  # read now and not on waking, where the turn comes first
            self._rung = False
            try:  # noqa: SIM105 (as above)
                os.read(self._ends.reader, _MANY_BYTES)
            except BlockingIOError:
                pass
        self._armed = True
        try:
            if self._signalled:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(self._ends.reader)
                self._rung = True  # also by who took the flag before the last sleep and has written only now
        finally:
            self._rung |= not self._armed  # who took the flag has written, or is about to
            self._armed = False
            self._signalled = False

    async def wait(self, timeout_ms: float) -> None:
        """As `sleep`, for at most so long."""
        with trio.move_on_after(timeout_ms / 1000):
            await self.sleep()

    def close(self) -> None:
        """Gives the descriptor back. Nobody may be asleep; a later sleep opens another."""
        self._ends = _NONE


class _Ends:
    """Descriptors that are closed when the last name for them is gone: by reference count, without a lock."""

    __slots__ = ("__weakref__", "reader", "writer")

    def __init__(self, reader: int, writer: int) -> None:
        self.reader, self.writer = reader, writer


def _open() -> _Ends:
    if sys.platform == "linux":
        reader = writer = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    else:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
    ends = _Ends(reader, writer)
    for descriptor in {reader, writer}:
        weakref.finalize(ends, os.close, descriptor).atexit = False
    return ends


_NONE = _Ends(-1, -1)
_ONE = (1).to_bytes(8, sys.byteorder)
"""What is added to an eventfd; to a pipe it is just some bytes."""
_MANY_BYTES = 4096


class Wakes(Protocol):
    """What has to be known of the sender's ``Wakeup``."""

    def wake(self) -> None:
        """The sender takes a turn soon."""


class FreeBytes(Protocol):
    """What has to be known of the accumulator."""

    @property
    def free_bytes(self) -> int:
        """Memory that nothing has reserved."""


class HandOver:
    """Wakes the sender for the application's threads, and has them wait where they are too far ahead.

    A thread that waits for the interpreter lock gets it after 5 ms if another one does not give it up, and
    the sender has to ask for it again after every system call and every checksum. An application that sends
    in a loop would keep it so long that all of ``buffer_memory`` fills, and only then, out of memory, stand
    aside. So whoever opens one batch too many without the sender having had a turn waits until it has taken
    what there is. It then writes that while the application goes on.

    Args:
        wakeup: the sender's.
        memory: tells how much the application has reserved since the last drain.
        batch_bytes: of a full batch.
        in_sender_thread: whether the caller's thread runs a sender, and must not wait for it.
    """

    def __init__(
        self, wakeup: Wakeup, memory: FreeBytes, batch_bytes: int, *, in_sender_thread: Callable[[], bool]
    ) -> None:
        self._wakeup = wakeup
        self._in_sender_thread = in_sender_thread
        self._memory = memory
        self._limit_bytes = max(HAND_OVER_BYTES, HAND_OVER_BATCHES * batch_bytes)
        self._free_bytes = memory.free_bytes  # after the last drain
        self._gates: deque[threading.Lock] = deque()

    def wake(self) -> None:
        """A batch was opened or is full. Called without the guard; in the sender's own thread never waits."""
        if self._free_bytes - self._memory.free_bytes < self._limit_bytes or self._in_sender_thread():
            self._wakeup.wake()
            return
        gate = threading.Lock()
        gate.acquire()
        self._gates.append(gate)
        self._wakeup.wake()
        gate.acquire(timeout=LONGEST_WAIT_SECONDS)

    def drained(self) -> None:
        """From the sender's thread: what there is was taken, or memory came back. Who waits goes on."""
        self._free_bytes = self._memory.free_bytes
        while self._gates:  # only this thread takes any out
            self._gates.popleft().release()


class Latch:
    """Opens once. Who opens it sets the flag and then takes the waiters; who waits appends and then looks at
    the flag once more. Both orders rest on the GIL, and either finds the other.
    """

    def __init__(self) -> None:
        self.opened = False
        self._waiters: deque[Callable[[], None]] = deque()

    def open(self) -> None:
        """Wakes everybody; repeating it does nothing."""
        self.opened = True
        while True:
            try:
                wake = self._waiters.popleft()
            except IndexError:
                return
            wake()

    def subscribe(self, wake: Callable[[], None]) -> object | None:
        """Has ``wake`` called once when it opens; None: it is open already and ``wake`` is not kept."""
        self._waiters.append(wake)
        if self.opened:
            self.unsubscribe(wake)
            return None
        return wake

    def unsubscribe(self, handle: Any) -> None:
        """Takes back a subscription; one that has fired already is ignored."""
        with suppress(ValueError):
            self._waiters.remove(handle)
