"""What other threads have a producer's loop do: by a task of it, or by themselves once it has ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from splashdam.sender.latch import Latch
from splashdam.sender.wakeup import Wakeup


class Errands:
    """A queue that one task empties, and after the end whoever comes.

    Args:
        finished: open when the task has ended.
    """

    def __init__(self, finished: Latch) -> None:
        self._finished = finished
        self._queue: deque[Callable[[], object]] = deque()
        self._wakeup = Wakeup()

    def add(self, act: Callable[[], object]) -> None:
        """Has ``act`` called in the loop, between the steps of all its tasks; here, if the loop has ended.

        From any thread, also in signal handlers and ``__del__``.
        """
        self._queue.append(act)
        self._wakeup.wake()
        if self._finished.opened:
            self.do_all()

    async def run(self) -> None:
        """The task."""
        while True:
            await self._wakeup.sleep()
            self.do_all()

    def do_all(self) -> None:
        """Does what there is."""
        while True:
            try:
                act = self._queue.popleft()
            except IndexError:  # not asked before: when the loop has ended, two threads may be at it
                return
            act()

    def close(self) -> None:
        """The task has ended, and leaves no descriptor behind."""
        self._wakeup.close()
