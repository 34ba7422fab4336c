"""How application threads wake the sender: one armed flag, so that most wakes cost two assignments."""

from __future__ import annotations

import contextlib

import trio


class Wakeup:
    """Wakes one sleeping task from any thread.

    Both sides write their own flag before they read the other's, which the GIL keeps in this order: either
    the sleeper sees that it was signalled and does not sleep, or the waker sees that it is armed and fires. A
    wake while nobody sleeps is kept for the next `wait`.
    """

    def __init__(self) -> None:
        self._signalled = False
        self._armed = False
        self._event = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None

    def wake(self) -> None:
        """From any thread; returns at once and never raises, also after the loop has ended."""
        self._signalled = True
        if self._armed:
            self._armed = False
            token = self._token
            # The loop may be gone, or its wake-up socket may belong to the process we were forked from.
            with contextlib.suppress(Exception):
                if token is not None:
                    token.run_sync_soon(self._fire, idempotent=True)

    def notify(self) -> None:
        """As `wake`, from a task of the same loop."""
        self._signalled = True
        self._event.set()

    async def wait(self, timeout_ms: float) -> None:
        """Sleeps until somebody wakes or the time has passed; not at all if somebody has woken already."""
        self._event = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        self._armed = True
        try:
            if self._signalled:
                await trio.lowlevel.checkpoint()
            else:
                with trio.move_on_after(timeout_ms / 1000):
                    await self._event.wait()
        finally:
            self._armed = False
            self._signalled = False

    def _fire(self) -> None:
        self._event.set()
