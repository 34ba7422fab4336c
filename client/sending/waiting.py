"""Waits between the steps of a ``PendingSend`` or a ``TopicLookup``: a thread, a trio task, or neither."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

import trio

from splashdam.client.future import in_callback
from splashdam.client.observing.timings import CallerCounters
from splashdam.client.sending.deferred_sends import DeferredSends
from splashdam.client.sending.intake import PendingSend, RecordIntake, Wait
from splashdam.client.waiters import SENDER_THREADS, wait_in_asyncio, wait_in_thread, wait_in_trio
from splashdam.model.errors import WouldBlock
from splashdam.model.log_text import shown
from splashdam.net.clock import Clock
from splashdam.record.kernel.outcomes.outcome import FutureT

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Stepper(Protocol[T_co]):
    """A ``PendingSend`` or a lookup: decides in steps and never waits itself."""

    @property
    def waits_for(self) -> Wait | None:
        """What has to happen before the next step."""

    @property
    def deadline_ms(self) -> float:
        """End of the wait; a step after it raises if it would have to wait again."""

    def step(self) -> T_co | None:
        """Do one step; None: wait and try again."""

    def cancel(self) -> None:
        """Release what it holds while it waits."""


class Deadline:
    """A deadline from a timeout in seconds; a timeout of None means no limit.

    Raises:
        TypeError: the timeout is not a number.
        ValueError: the timeout is negative.
    """

    __slots__ = ("_clock", "_end_ms")

    def __init__(self, clock: Clock, timeout: float | None) -> None:
        if timeout is not None and not isinstance(timeout, int | float):
            raise TypeError(f"timeout must be a number of seconds or None, not {shown(timeout)}")
        if timeout is not None and timeout < 0:
            raise ValueError(f"timeout must not be negative: {timeout}")
        self._clock = clock
        self._end_ms = None if timeout is None else clock.now_ms() + timeout * 1000

    def left(self) -> float | None:
        """Seconds left, at least 0; None for no limit."""
        return None if self._end_ms is None else max(self._end_ms - self._clock.now_ms(), 0.0) / 1000

    def left_or_infinite(self) -> float:
        """As ``left``, with infinity for no limit."""
        left = self.left()
        return math.inf if left is None else left


def drive_in_thread(stepper: Stepper[T], clock: Clock, counters: CallerCounters) -> T:
    """Block the calling thread until there is a result. An interrupted wait releases its resources."""
    try:
        while (result := stepper.step()) is None:
            if stepper.waits_for is not None:
                with _waiting(stepper.waits_for, clock, counters):
                    wait_in_thread(stepper.waits_for, _seconds_left(stepper, clock))
    except BaseException:
        stepper.cancel()
        raise
    return result


async def drive_in_trio(stepper: Stepper[T], clock: Clock, counters: CallerCounters) -> T:
    """As ``drive_in_thread``, in a trio task. A checkpoint if it has to wait."""
    try:
        while (result := stepper.step()) is None:
            if stepper.waits_for is not None:
                with (
                    _waiting(stepper.waits_for, clock, counters),
                    trio.move_on_after(_seconds_left(stepper, clock)),
                ):
                    await wait_in_trio(stepper.waits_for)
    except BaseException:
        stepper.cancel()
        raise
    return result


async def drive_in_asyncio(stepper: Stepper[T], clock: Clock, counters: CallerCounters) -> T:
    """As ``drive_in_thread``, in an asyncio task."""
    try:
        while (result := stepper.step()) is None:
            if stepper.waits_for is not None:
                with _waiting(stepper.waits_for, clock, counters):
                    await wait_in_asyncio(stepper.waits_for, _seconds_left(stepper, clock))
    except BaseException:
        stepper.cancel()
        raise
    return result


@contextmanager
def _waiting(what: Wait, clock: Clock, counters: CallerCounters) -> Iterator[None]:
    since_ms = clock.now_ms()
    try:
        yield
    finally:
        counters.add(f"{what.what}_ns", (clock.now_ms() - since_ms) * 1e6)


def _seconds_left(stepper: Stepper[object], clock: Clock) -> float:
    return max(stepper.deadline_ms - clock.now_ms(), 0.0) / 1000


def _no_task() -> None:
    """Stands for the reference to a task."""


class PendingSends(Generic[FutureT]):
    """Completes pending sends: by waiting, by deferring them to the sender's loop, or by ``WouldBlock``."""

    def __init__(self, intake: RecordIntake[FutureT], deferred: DeferredSends[FutureT]) -> None:
        self._intake = intake
        self._deferred = deferred
        self._last_task: Callable[[], object] = _no_task

    def in_thread(self, pending: PendingSend[FutureT]) -> FutureT:
        """Wait in this thread, or defer the record if this thread must not wait."""
        intake, deferred = self._intake, self._deferred
        if intake.guard.interrupted():
            return deferred.add(pending)
        # The sender's thread would wait for itself: it updates the metadata and frees the memory.
        if SENDER_THREADS.here():
            future = None if deferred.waiting else pending.step()
            return future or deferred.add(pending)
        return drive_in_thread(pending, intake.clock, intake.caller_counters)

    async def in_trio(self, pending: PendingSend[FutureT]) -> FutureT:
        """As ``in_thread``, in a trio task. A checkpoint."""
        intake = self._intake
        if intake.guard.interrupted():
            return self._deferred.add(pending)
        future = await drive_in_trio(pending, intake.clock, intake.caller_counters)
        # Shielded: the record is queued, and a cancelled caller would not learn that.
        await trio.lowlevel.cancel_shielded_checkpoint()
        return future

    async def in_asyncio(self, pending: PendingSend[FutureT]) -> FutureT:
        """As ``in_thread``, in an asyncio task. A task that only sends lets the others run first."""
        import asyncio
        from weakref import ref

        intake = self._intake
        if intake.guard.interrupted():
            return self._deferred.add(pending)
        # A task yields only if it was the last one here, too: it sends on and on. If each one yielded, a
        # hundred tasks that find the batch full in one turn of the loop would lose their order
        # (docs/decisions/asyncio.md).
        task = asyncio.current_task()
        if self._last_task() is task:
            # Before the record is appended: a task that was cancelled afterwards would not know
            # that it is queued, and would send it twice.
            try:
                await asyncio.sleep(0)
            except BaseException:
                pending.cancel()
                raise
        self._last_task = _no_task if task is None else ref(task)
        return await drive_in_asyncio(pending, intake.clock, intake.caller_counters)

    def now(self, pending: PendingSend[FutureT]) -> FutureT:
        """Append without waiting.

        Raises:
            WouldBlock: it would have to wait; nothing is queued.
        """
        deferred = self._deferred
        # A callback's record must not overtake those that earlier callbacks deferred.
        if self._intake.guard.interrupted() or (in_callback() and deferred.waiting):
            return deferred.add(pending)
        pending.deadline_ms = math.inf  # no timeout: this caller does not wait
        pending.patient = False
        future = pending.step()
        if future is not None:
            return future
        pending.cancel()
        what = "" if pending.waits_for is None else pending.waits_for.what
        raise WouldBlock(what, f"a record for topic {pending.topic!r} would have to wait for {what}")
