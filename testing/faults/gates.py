"""How a test's thread waits for what a broker's thread counts."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress


class Gates:
    """One for each thread that waits; whoever changes something opens them all.

    Nothing here is held while somebody waits, so that Ctrl-C leaves nothing taken: a ``threading.Condition``
    could stay locked by it on Python 3.14, and then the broker would wait for ever.
    """

    def __init__(self) -> None:
        self._closed: deque[threading.Lock] = deque()

    def open(self) -> None:
        """Who waits looks again."""
        with suppress(IndexError):  # whoever takes a gate out opens it
            while True:
                self._closed.popleft().release()

    def wait_until(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """Returns once it is so, or ``timeout_s`` have passed; whether it is so.

        Args:
            is_so: looked at once at least, then after each ``open``.
            timeout_s: the limit.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            gate = threading.Lock()
            gate.acquire()
            self._closed.append(gate)  # before the look: what changes behind it opens this gate
            try:
                if is_so():
                    return True
                left = deadline - time.monotonic()
                if left <= 0 or not gate.acquire(timeout=min(left, threading.TIMEOUT_MAX)):
                    return is_so()
            finally:
                with suppress(ValueError):  # it was opened
                    self._closed.remove(gate)
