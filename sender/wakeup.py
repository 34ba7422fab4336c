"""How threads and tasks wake each other.

``Wakeup`` wakes a sender in a loop of its own, ``SharedLoopWakeup`` one in the application's loop.
``ParkedTask`` is one wait of a trio task. ``GilHandOver`` makes threads of the application wait for the
sender. ``Latch`` is a one-time event.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import trio

from splashdam.net.connection.streams import Eagerness, read_soon

HAND_OVER_BYTES = 1024 * 1024
"""Memory that may be reserved for new batches between two drains before a thread waits for the next drain.

The size of a full request. Half of it costs throughput; four times of it changed nothing when measured."""

HAND_OVER_BATCHES = 4
"""The limit is at least this many full batches; else, with large ones, a bulk call would wait after each."""

NEXT_RECORD_US = 1_000.0
"""How long the sender waits in place for the next record of a caller that was just told of its last one."""
NEXT_RECORD_SPIN_US = 60.0
"""The part of it without sleep, where the last record came as fast: to wake a thread takes 20 to 40 µs."""
GRACE_US = 5.0
"""What a caller needs from its wake of the sender until it waits for the record, and releases the GIL."""

LONGEST_WAIT_SECONDS = 0.001
"""Longest wait for a drain. This only hands over the GIL; back-pressure is ``max_block_ms``."""


class ParkedTask:
    """One wait of the trio task that makes it; `wake` ends it, from any thread.

    A wake from a task of the same loop only puts the waiting task into the loop's queue. A thread needs
    ``run_sync_soon``, which writes to a socket pair: five system calls and another pass of the loop.
    """

    __slots__ = ("_parked", "_task", "_token")

    def __init__(self) -> None:
        self._task = trio.lowlevel.current_task()
        self._token = trio.lowlevel.current_trio_token()
        self._parked = [self._task]  # whatever ends the wait pops it: atomic, so the task is rescheduled once

    def wake(self) -> None:
        """End the wait, or the next `park`. Never blocks or raises, even in signal handlers, ``__del__``."""
        if not self._parked:
            return
        if self.is_beside():
            self._unpark()
        else:
            with suppress(trio.RunFinishedError):  # then its tasks have ended, too
                self._token.run_sync_soon(self._unpark)

    async def park(self) -> None:
        """Wait for `wake`. A checkpoint."""
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def give_up(self) -> None:
        """Ignore wakes from now on; for a task that does not park after all."""
        self._parked.clear()

    def is_beside(self) -> bool:
        """Return whether another task of the same loop runs this.

        Between two tasks the loop empties its queue: a signal handler or finalizer that interrupts it there
        must not touch the queue. One that interrupts the waiting task itself comes before that task parks.
        """
        try:
            running = trio.lowlevel.current_task()
        except RuntimeError:  # a thread without a loop, or the scheduler itself
            return False
        return running is not self._task and trio.lowlevel.current_trio_token() is self._token

    @trio.lowlevel.enable_ki_protection  # a Ctrl-C between the two would lose the task
    def _unpark(self) -> None:
        try:
            task = self._parked.pop()
        except IndexError:  # woken or cancelled before
            return
        trio.lowlevel.reschedule(task)

    def _abort(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._parked.clear()
        return trio.lowlevel.Abort.SUCCEEDED


class SharedLoopWakeup:
    """Wakes one sleeping task of a loop that it shares with the tasks that wake it; see `ParkedTask`.

    Threads may wake it, too. Each side writes its own attribute before it reads the other's, as in `Wakeup`.
    """

    def __init__(self) -> None:
        self._signalled = False
        self._sleeper: ParkedTask | None = None

    def wake(self) -> None:
        """See `Wakeup.wake`."""
        self._signalled = True
        sleeper = self._sleeper
        if sleeper is not None:
            sleeper.wake()

    def sleeps_beside(self) -> bool:
        """Return whether another task of the sleeper's loop asks, and the sleeper was not woken."""
        sleeper = self._sleeper
        return sleeper is not None and not self._signalled and sleeper.is_beside()

    async def sleep(self) -> None:
        """See `Wakeup.sleep`."""
        self._sleeper = sleeper = ParkedTask()
        try:
            if self._signalled:
                sleeper.give_up()
                await trio.lowlevel.checkpoint()
            else:
                await sleeper.park()
        finally:
            self._sleeper = None
            self._signalled = False

    def close(self) -> None:
        """See `Wakeup.close`; it has no descriptor."""


class Wakeup:
    """Wakes one sleeping task from any thread.

    Each side writes its own flag before it reads the other's; the GIL keeps this order. So either the sleeper
    sees the signal and does not sleep, or the waker sees the armed flag and writes. A wake while no task
    sleeps is kept for the next `sleep`.

    The sleeper waits for a descriptor of its own (an eventfd; elsewhere a pipe). Writing to it costs a
    twentieth of ``TrioToken.run_sync_soon``, and the sleeper runs in the first pass of its loop, not in the
    third. `close` releases it; a thread that is just writing keeps it open until then, so that a late wake
    never writes to a descriptor that was reused for something else.
    """

    def __init__(self) -> None:
        self._signalled = False
        self._armed = False
        self._rung = False
        self._bytes = bytearray(_MANY_BYTES)
        self._ends = _NONE
        self._spins = Eagerness()

    def wake(self) -> None:
        """Wake the task, from any thread or task. Never blocks or raises, also after `close`."""
        self._signalled = True
        if self._armed:
            self._armed = False
            ends = self._ends  # this reference keeps the descriptor open until it is written to
            try:  # noqa: SIM105 (suppress calls Python code; a Ctrl-C there would lose this wake and all later ones)
                os.write(ends.writer, _ONE)
            except OSError:
                pass  # a full pipe wakes anyway; after close no task sleeps

    async def sleep(self) -> None:
        """Sleep until the next wake; return at once if there was one already."""
        if self._ends is _NONE:
            self._ends = _open()
        # Emptied before the next sleep and not on waking: the sender's turn should not wait for a system
        # call.
        if self._rung:
            self._silence()
        self._armed = True
        try:
            if self._signalled:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(self._ends.reader)
                # The bytes may be those of a waker that took the flag before the last sleep: a needless turn.
                self._rung = True
        finally:
            self._rung |= not self._armed  # a waker that took the flag has written, or will
            self._armed = False
            self._signalled = False

    def is_woken_soon(self) -> bool:
        """Return whether a wake came or comes within 1 ms. Blocks the loop; for one of the sender's own.

        Threads that were just told of their records get the interpreter lock at once, and one that sends its
        next record right away finds the sender awake: no pass of the loop.
        """
        if self._ends is _NONE:
            self._ends = _open()
        if self._rung:
            self._silence()
        self._armed = True
        read = None if self._signalled else self._read_soon()
        self._rung = not (self._armed or read)  # a waker that took the flag will write
        self._armed = False
        woken = self._signalled
        if woken:  # else a wake that comes right here would be lost: only a turn may follow a cleared flag
            self._signalled = False
        return woken

    def _read_soon(self) -> int | None:
        spin_us = NEXT_RECORD_SPIN_US if self._spins.is_due() else 0.0
        began = time.perf_counter()
        read = read_soon(self._ends.reader, self._bytes, NEXT_RECORD_US, spin_us, GRACE_US)
        if spin_us:
            waited_us = (time.perf_counter() - began) * 1e6
            self._spins.note(read is not None and waited_us <= spin_us + GRACE_US)
        return read

    async def wait(self, timeout_ms: float) -> None:
        """As `sleep`, for at most ``timeout_ms``."""
        with trio.move_on_after(timeout_ms / 1000):
            await self.sleep()

    def _silence(self) -> None:
        self._rung = False
        try:  # noqa: SIM105 (as above)
            os.read(self._ends.reader, _MANY_BYTES)
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Release the descriptor. No task may be asleep; a later sleep opens another."""
        self._ends = _NONE


class _Ends:
    """Descriptors that are closed with their last reference; needs no lock."""

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
"""The increment of an eventfd; for a pipe, any bytes."""
_MANY_BYTES = 4096


class Wakes(Protocol):
    """What ``GilHandOver`` needs of the sender's ``Wakeup``."""

    def wake(self) -> None:
        """Wake the sender."""


class FreeBytes(Protocol):
    """What ``GilHandOver`` needs of the memory budget."""

    free_bytes: int
    """Memory that no batch has reserved."""


class GilHandOver:
    """Wakes the sender for application threads, and makes them wait if they are too far ahead of it.

    A thread that waits for the GIL gets it after 5 ms unless its holder releases it, and the sender needs it
    again after every system call and checksum. An application that sends in a loop would hold the GIL until
    all of ``buffer_memory`` is full. So a thread that opens too many batches between two drains waits for
    the next drain; the sender then writes while the application continues.

    Args:
        wakeup: the sender's.
        memory: tells how much was reserved since the last drain.
        batch_bytes: size of a full batch.
        in_sender_thread: whether the caller's thread runs a sender, and must not wait for it.
    """

    def __init__(
        self, wakeup: Wakes, memory: FreeBytes, batch_bytes: int, *, in_sender_thread: Callable[[], bool]
    ) -> None:
        self._wakeup = wakeup
        self._in_sender_thread = in_sender_thread
        self._memory = memory
        self._limit_bytes = max(HAND_OVER_BYTES, HAND_OVER_BATCHES * batch_bytes)
        self._free_bytes = memory.free_bytes  # after the last drain
        self._gates: deque[threading.Lock] = deque()

    def wake(self) -> None:
        """Wake the sender after a batch was opened or became full, and wait if the limit is reached.

        Called without the guard. Never waits in a sender's own thread.
        """
        if self._free_bytes - self._memory.free_bytes < self._limit_bytes or self._in_sender_thread():
            self._wakeup.wake()
            return
        gate = threading.Lock()
        gate.acquire()
        # Before the wake: a drain that it causes must find the gate.
        self._gates.append(gate)
        self._wakeup.wake()
        gate.acquire(timeout=LONGEST_WAIT_SECONDS)

    def drained(self) -> None:
        """Release the waiting threads after a drain, or after memory came back. Called by the sender."""
        self._free_bytes = self._memory.free_bytes
        while self._gates:  # only this thread removes gates, so the check holds for the next line
            self._gates.popleft().release()


class Latch:
    """A one-time event for threads and tasks.

    `open` sets the flag, then takes the waiters; `subscribe` appends, then reads the flag again. With the
    GIL, at least one of the two sees the other.
    """

    def __init__(self) -> None:
        self.opened = False
        self._waiters: deque[Callable[[], None]] = deque()

    def open(self) -> None:
        """Open it and wake all waiters; repeating it does nothing."""
        self.opened = True
        while True:
            try:
                wake = self._waiters.popleft()
            except IndexError:
                return
            wake()

    def subscribe(self, wake: Callable[[], None]) -> object | None:
        """Have ``wake`` called once when it opens; return None if it is open already."""
        self._waiters.append(wake)
        if self.opened:
            self.unsubscribe(wake)
            return None
        return wake

    def unsubscribe(self, handle: Any) -> None:
        """Remove a subscription; one that has fired already is ignored."""
        with suppress(ValueError):
            self._waiters.remove(handle)
