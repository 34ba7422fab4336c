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
    not in the third. It is closed with this object, not with the loop: a late wake never meets a descriptor
    that is somebody else's by then.
    """

    def __init__(self) -> None:
        self._signalled = False
        self._armed = False
        self._rung = False
        self._reader = self._writer = -1

    def wake(self) -> None:
        """From any thread or task; returns at once and never raises, also after the loop has ended."""
        self._signalled = True
        if self._armed:
            self._armed = False
            try:  # noqa: SIM105 (suppress calls Python code; a Ctrl-C there would lose this wake and all later ones)
                os.write(self._writer, _ONE)
            except OSError:
                pass  # a full pipe: it wakes anyway

    async def sleep(self) -> None:
        """Sleeps until somebody wakes; not at all if somebody has woken already."""
        if self._reader < 0:
            self._open()
        if self._rung:  # read now and not on waking, where the turn comes first
            self._rung = False
            try:  # noqa: SIM105 (as above)
                os.read(self._reader, _MANY_BYTES)
            except BlockingIOError:
                pass
        self._armed = True
        try:
            if self._signalled:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(self._reader)
                self._rung = True  # also by who took the flag before the last sleep and has written only now
        finally:
            self._rung |= not self._armed  # who took the flag has written, or is about to
            self._armed = False
            self._signalled = False

    async def wait(self, timeout_ms: float) -> None:
        """As `sleep`, for at most so long."""
        with trio.move_on_after(timeout_ms / 1000):
            await self.sleep()

    def _open(self) -> None:
        if sys.platform == "linux":
            self._reader = self._writer = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._reader, self._writer = os.pipe()
            os.set_blocking(self._reader, False)
            os.set_blocking(self._writer, False)
        for descriptor in {self._reader, self._writer}:
            weakref.finalize(self, os.close, descriptor).atexit = False


_ONE = (1).to_bytes(8, sys.byteorder)
"""What is added to an eventfd; to a pipe it is just some bytes."""
_MANY_BYTES = 4096
