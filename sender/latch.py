"""Something that happens once, and those who wait for it in any thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any


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
