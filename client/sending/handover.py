"""How an application thread lets the sender have its turn.

A thread that waits for the interpreter lock gets it after 5 ms if another one does not give it up, and the
sender has to ask for it again after every system call and every checksum. An application that sends in a loop
would keep it so long that all of ``buffer_memory`` fills, and only then, out of memory, stands aside. So
whoever opens one batch too many without the sender having had a turn waits until it has taken what there
is. It then writes that while the application goes on.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Protocol

from splashdam.client.waiters import SENDER_THREADS

HAND_OVER_BYTES = 1024 * 1024
"""So much may be reserved for new batches between two drains of the sender before somebody waits for one.

What a request holds in the end. Half of it costs throughput, four times of it changes nothing any more."""

HAND_OVER_BATCHES = 4
"""At least so many full batches, or with large ones a bulk call would wait after each."""

LONGEST_WAIT_SECONDS = 0.001
"""A drain is over before. It is only a hand-over, not back-pressure: that is ``max_block_ms``."""


class FreeBytes(Protocol):
    """What has to be known of the accumulator."""

    @property
    def free_bytes(self) -> int:
        """Memory that nothing has reserved."""


class Wakes(Protocol):
    """What has to be known of the sender's ``Wakeup``."""

    def wake(self) -> None:
        """The sender takes a turn soon."""


class HandOver:
    """Wakes the sender for the application's threads, and has them wait where they are too far ahead.

    Args:
        wakeup: the sender's.
        memory: tells how much the application has reserved since the last drain.
        batch_bytes: of a full batch.
    """

    def __init__(self, wakeup: Wakes, memory: FreeBytes, batch_bytes: int) -> None:
        self._wakeup = wakeup
        self._memory = memory
        self._limit_bytes = max(HAND_OVER_BYTES, HAND_OVER_BATCHES * batch_bytes)
        self._free_bytes = memory.free_bytes  # after the last drain
        self._gates: deque[threading.Lock] = deque()

    def wake(self) -> None:
        """A batch was opened or is full. Called without the guard; in the sender's own thread never waits."""
        if self._free_bytes - self._memory.free_bytes < self._limit_bytes or SENDER_THREADS.here():
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
