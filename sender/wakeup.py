"""How application threads wake the sender: one armed flag, so that most wakes cost two assignments."""

from __future__ import annotations

import os
import sys
import weakref

import trio


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
