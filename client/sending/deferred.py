"""Records that could not be brought in where they were sent, because their sender must not wait there.

Two callers must not: a delivery callback, which runs on the very thread that brings metadata and frees
memory, and a signal handler or ``__del__`` that has interrupted the holder of the guard. Their ``send``
returns at once, and a task of the sender's loop brings the records in, in order, within ``max_block_ms``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from splashdam.client.future import RecordFuture
from splashdam.client.sending.intake import Admission, RecordIntake, Wait
from splashdam.model.errors import BufferExhaustedError
from splashdam.record.kernel import BatchOutcome
from splashdam.sender.wakeup import Wakeup

DEFERRED_BYTES_LIMIT = 1024 * 1024
"""What deferred records may hold beside ``buffer_memory``."""


_Deferred: TypeAlias = tuple[Admission, BatchOutcome]


class DeferredRecords:
    """The queue and the task that empties it. ``add`` may be called from anywhere; the rest is the loop's."""

    def __init__(self, intake: RecordIntake) -> None:
        self._intake = intake
        self._custom_partitioner = intake.detour
        self._queue: deque[_Deferred] = deque()
        self._wakeup = Wakeup()
        self._bytes = 0
        self._when_empty: Callable[[], None] | None = None
        self._subscription: tuple[Wait, object] | None = None

    @property
    def waiting(self) -> int:
        """How many records are queued."""
        return len(self._queue)

    def outcomes(self) -> list[BatchOutcome]:
        """What a flush waits for."""
        return [outcome for _, outcome in list(self._queue)]

    def add(self, admission: Admission) -> RecordFuture:
        """Queues a record; its future is an ordinary one.

        Raises:
            BufferExhaustedError: too much is queued already; callbacks send more than is delivered.
        """
        size_bytes = admission.size_bytes()
        if self._queue and self._bytes + size_bytes > DEFERRED_BYTES_LIMIT:
            raise BufferExhaustedError(
                f"{self.waiting} records sent from callbacks, signal handlers or __del__ wait already:"
                " these must not wait where they are sent, and what they hold is limited"
            )
        admission.accept()
        future = admission.promise()
        self._bytes += size_bytes
        self._queue.append((admission, future.outcome))
        self._intake.detour = True
        self._wakeup.wake()
        return future

    async def run(self) -> None:
        """Brings records in as they come, and again when what they wait for has happened."""
        while True:
            wait_ms = self.pump()
            await self._wakeup.wait(wait_ms)

    def pump(self) -> float:
        """Brings in what can be; milliseconds until a record's time is up."""
        self._unsubscribe()
        while (head := self._head()) is not None:
            admission, outcome = head
            try:
                future = admission.step()
            except Exception as error:
                if self._take(head):
                    _end(outcome, error)
                continue
            if future is None:
                assert admission.waits_for is not None
                self._subscribe(admission.waits_for)
                return max(admission.deadline_ms - self._intake.clock.now_ms(), 0.0)
            if self._take(head):
                _follow(outcome, future)
        self._bytes = 0  # it is only nearly exact: two threads may add at once
        self._intake.detour = self._custom_partitioner
        act, self._when_empty = self._when_empty, None
        if act is not None:
            act()
        return float("inf")

    def fail_all(self, error: BaseException) -> int:
        """Nobody will bring these in; counts them. From any thread, also while the loop is at it."""
        count = 0
        self._unsubscribe()
        while (head := self._head()) is not None:
            admission, outcome = head
            if self._take(head):
                count += 1
                admission.cancel()
                _end(outcome, error)
        return count

    def close(self) -> None:
        """The task has ended, and leaves no descriptor behind."""
        self._wakeup.close()

    def when_empty(self, act: Callable[[], None]) -> None:
        """Has ``act`` called in the loop, once the queue is empty. From any thread."""
        self._when_empty = act
        self._wakeup.wake()

    def _head(self) -> _Deferred | None:
        try:
            return self._queue[0]
        except IndexError:
            return None

    def _take(self, head: _Deferred) -> bool:
        """Whether the caller, and no other thread, ends this record's promise.

        It is taken after it was brought in, so that a flush finds it in one place or the other.
        """
        try:
            self._queue.remove(head)
        except ValueError:
            return False
        self._bytes -= head[0].size_bytes()
        return True

    def _subscribe(self, waits_for: Wait) -> None:
        handle = waits_for.subscribe(self._wakeup.wake)
        if handle is None:
            self._wakeup.wake()
        else:
            self._subscription = (waits_for, handle)

    def _unsubscribe(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            waits_for, handle = subscription
            waits_for.unsubscribe(handle)


def _end(outcome: BatchOutcome, error: BaseException) -> None:
    outcome.fail(error)
    outcome.run_waiters()


def _follow(promise: BatchOutcome, future: RecordFuture) -> None:
    """The promise becomes a batch of its own that takes its fate from the record's real future."""
    fate = BatchOutcome(future.outcome.topic_partition)
    promise.split((0, 1), (fate,))
    if future.outcome.add_waiter(partial(_copy_fate, future, fate), future.index) is None:
        _copy_fate(future, fate)


def _copy_fate(future: RecordFuture, fate: BatchOutcome) -> None:
    leaf, index = future.outcome.leaf_of(future.index)
    error = leaf.error_of(index)
    if error is not None:
        fate.fail(error)
    else:
        fate.succeed(leaf.offset_of(index), leaf.log_append_time_ms)
    fate.run_waiters()
