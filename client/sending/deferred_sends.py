"""Records that must wait for metadata or memory, sent from code that must not wait.

Two callers must not wait: a delivery callback, which runs on the very thread that updates metadata and frees
memory, and a signal handler or ``__del__`` that has interrupted the holder of the guard. Their ``send``
returns at once; a task of the sender's loop appends the records, in order, within ``max_block_ms``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeAlias

import trio

from splashdam.client.sending.intake import PendingSend, RecordIntake, Wait
from splashdam.model.errors import BufferExhaustedError
from splashdam.record.kernel import BatchOutcome
from splashdam.record.kernel.outcomes.outcome import FutureCell, FutureT
from splashdam.sender.wakeup import Wakeup

DEFERRED_BYTES_LIMIT = 1024 * 1024
"""Memory for deferred records, in addition to ``buffer_memory``."""


_Deferred: TypeAlias = tuple[PendingSend[Any], BatchOutcome]


class DeferredSends(Generic[FutureT]):
    """The queue of deferred records and its task. ``add`` may be called from any thread."""

    def __init__(self, intake: RecordIntake[FutureT]) -> None:
        self._intake = intake
        self._custom_partitioner = intake.detour
        self._queue: deque[_Deferred] = deque()
        self._wakeup = Wakeup()
        self._bytes = 0
        self._when_empty: Callable[[], None] | None = None
        self._subscription: tuple[Wait, object] | None = None
        self._ended_by: BaseException | None = None

    @property
    def waiting(self) -> int:
        """Number of queued records."""
        return len(self._queue)

    def outcomes(self) -> list[BatchOutcome]:
        """The outcomes that a flush waits for."""
        return [outcome for _, outcome in list(self._queue)]

    def add(self, pending: PendingSend[FutureT]) -> FutureT:
        """Queue a record and return its future.

        Raises:
            BufferExhaustedError: the queue is full; callbacks send more than is delivered.
        """
        size_bytes = pending.size_bytes()
        # The first one is taken whatever its size, or a large record could never be sent from a callback.
        if self._queue and self._bytes + size_bytes > DEFERRED_BYTES_LIMIT:
            raise BufferExhaustedError(
                f"{self.waiting} records from callbacks, signal handlers or __del__ are queued already, which"
                f" may hold {DEFERRED_BYTES_LIMIT} bytes; send fewer records from there"
            )
        pending.accept()
        future = pending.promise()
        self._bytes += size_bytes
        self._queue.append((pending, future.outcome))
        self._intake.detour = True
        self._wakeup.wake()
        if self._ended_by is not None:  # after `end`, nobody would look at the queue any more
            self.fail_all(self._ended_by)
        return future

    @trio.lowlevel.enable_ki_protection  # see ``ProducerCore.main``
    async def run(self) -> None:
        """Append records as they become possible, until cancelled."""
        while True:
            wait_ms = self.pump()
            await self._wakeup.wait(wait_ms)

    def pump(self) -> float:
        """Append what can be appended; return milliseconds until the first record times out."""
        self._unsubscribe()
        while (head := self._head()) is not None:
            pending, outcome = head
            try:
                future = pending.step()
            # The application has its future already, which must tell the error.
            except Exception as error:
                if self._take(head):
                    _end(outcome, error)
                continue
            if future is None:
                assert pending.waits_for is not None
                self._subscribe(pending.waits_for)
                return max(pending.deadline_ms - self._intake.clock.now_ms(), 0.0)
            if self._take(head):
                # Otherwise `fail_all` has ended its future in between; the record is sent all the same.
                _follow(outcome, future)
        self._intake.detour = self._custom_partitioner
        if self._queue:
            # Another thread has added a record since the look above: the detour that it set is gone, and its
            # next record would overtake this one.
            self._intake.detour = True
            return self.pump()
        self._bytes = 0  # the count is approximate: two threads may add at once
        act, self._when_empty = self._when_empty, None
        if act is not None:
            act()
        return float("inf")

    def fail_all(self, error: BaseException) -> int:
        """Fail all deferred records and return their number. From any thread, also beside the task."""
        count = 0
        self._unsubscribe()
        while (head := self._head()) is not None:
            pending, outcome = head
            if self._take(head):
                count += 1
                pending.cancel()
                _end(outcome, error)
        return count

    def end(self, error: BaseException) -> None:
        """As ``fail_all``, and fail what is still added, by a thread that was let in before the end."""
        self._ended_by = error  # first: `add` reads it after it has appended
        self.fail_all(error)

    def close(self) -> None:
        """Close the wakeup's file descriptor after the task has ended."""
        self._wakeup.close()

    def when_empty(self, act: Callable[[], None]) -> None:
        """Have ``act`` called in the loop once the queue is empty. From any thread."""
        self._when_empty = act
        self._wakeup.wake()

    def _head(self) -> _Deferred | None:
        try:
            return self._queue[0]
        except IndexError:
            return None

    def _take(self, head: _Deferred) -> bool:
        """Remove a record; True if the caller, and no other thread, has removed it.

        It is removed after it was appended, so that a flush finds it in the queue or in a batch.
        """
        try:
            self._queue.remove(head)
        except ValueError:
            return False
        self._bytes -= head[0].size_bytes()
        return True

    def _subscribe(self, waits_for: Wait) -> None:
        handle = waits_for.subscribe(self._wakeup.wake)
        # It has happened since the step: `run` must not sleep over it.
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


def _follow(promise: BatchOutcome, future: FutureCell) -> None:
    """Complete the outcome that ``add`` promised together with that of the record's batch.

    A batch's outcome covers all its records, so the promise cannot be that outcome: it is split into a single
    record, whose result is copied.
    """
    fate = BatchOutcome(future.outcome.topic_partition)
    promise.split((0, 1), (fate,))
    if future.outcome.add_waiter(partial(_copy_fate, future, fate), future.index) is None:
        _copy_fate(future, fate)


def _copy_fate(future: FutureCell, fate: BatchOutcome) -> None:
    leaf, index = future.outcome.leaf_of(future.index)
    error = leaf.error_of(index)
    if error is not None:
        fate.fail(error)
    else:
        fate.succeed(leaf.offset_of(index), leaf.log_append_time_ms)
    fate.run_waiters()
