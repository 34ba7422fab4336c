"""``DeliveryFuture``: the delivery of a record, for asyncio; and how completed batches get into event loops.

A record costs its future and nothing else until somebody waits for it. Waits are kept by batch:
``BatchWatch`` has the waits of one event loop for one batch. When the batch ends, the sender's thread calls
it once; the loop is woken once for all batches that ended meanwhile (``LoopWatch``), and there every wait is
told. Everything but ``BatchWatch.__call__`` runs in the loop's own thread, so there is no lock.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias, final

from splashdam.model.errors import IllegalStateError
from splashdam.record.kernel import SPLIT, BatchOutcome, FutureCell, uncollected
from splashdam.record.kernel.outcomes.outcome import fresh

if TYPE_CHECKING:
    from splashdam.model.values import RecordMetadata

    class _Cell(FutureCell, asyncio.Future[RecordMetadata]):  # type: ignore[misc]  # never made: both have slots
        """What the signature of ``asyncio.wait`` asks for; it only calls the methods."""
else:
    _Cell = FutureCell

Told: TypeAlias = Callable[[Any], object]
"""Gets the future that is done."""

Telling: TypeAlias = tuple["DeliveryFuture | Wait", Told, Context]
"""Who waits for a record, the future itself or a task; what is called with it; and in which context."""


class LoopWatch:
    """What one event loop waits for. Its methods are called in the loop's thread, but for ``ring``."""

    __slots__ = ("__weakref__", "_batches", "_due", "_ended", "_loop", "_rung", "_scheduled")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Weak: an application may drop a loop while its records are still on their way.
        self._loop = weakref.ref(loop)
        self._batches: dict[BatchOutcome, BatchWatch] = {}
        self._ended: deque[BatchWatch] = deque()
        self._due: deque[Telling] = deque()
        self._rung = self._scheduled = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop.

        Raises:
            RuntimeError: it was collected.
        """
        loop = self._loop()
        if loop is None:
            raise RuntimeError("the event loop is gone")
        return loop

    def is_of(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether this is the loop."""
        return self._loop() is loop

    def add(self, cell: FutureCell, telling: Telling) -> None:
        """Tell it in the loop once the record is done, but not in this call."""
        if cell.done() or not self._join(cell, telling):
            self.soon(telling)

    def soon(self, telling: Telling) -> None:
        """Tell it in the next turn of the loop."""
        self._due.append(telling)
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._tell)

    def remove(self, cell: FutureCell, is_one: Callable[[Telling], bool]) -> list[Telling]:
        """Forget those tellings about a record for which ``is_one`` is true, and return them."""
        # Those of a batch that was split may be with it and with any of its parts.
        batches = (
            list(self._batches.values()) if cell.outcome.state == SPLIT else [self._batches.get(cell.outcome)]
        )
        tellings = [each for batch in batches if batch is not None for each in batch.tellings.pop(cell, ())]
        for each in tellings:
            if not is_one(each):
                self.add(cell, each)
        return list(filter(is_one, tellings))

    def ring(self, batch: BatchWatch) -> None:
        """Tell what waits for a batch that has ended. Called in the sender's thread."""
        self._ended.append(batch)
        if self._rung:
            return
        self._rung = True
        loop = self._loop()
        with suppress(RuntimeError):  # the loop is closed, and its tasks with it
            if loop is not None:
                loop.call_soon_threadsafe(self._tell)
                return
        self._batches.clear()
        self._ended.clear()

    def _join(self, cell: FutureCell, telling: Telling) -> bool:
        """Watch the record's batch; return False if that is done already."""
        outcome, index = cell.outcome, cell.index
        if outcome.state == SPLIT:
            outcome, index = outcome.leaf_of(index)
        batch = self._batches.get(outcome)
        if batch is None:
            batch = BatchWatch(self, outcome)
            # As a waiter of this record, and not of the batch: if that is split, the records that are done
            # first need not wait for the others.
            if outcome.add_waiter(batch, index) is None:
                return False
            self._batches[outcome] = batch
        batch.tellings[cell] = (*batch.tellings.get(cell, ()), telling)
        return True

    def _tell(self) -> None:
        self._rung = self._scheduled = False
        due = self._due
        while self._ended:
            self._take(self._ended.popleft())
        loop = self.loop
        try:
            for _ in range(len(due)):  # what is added meanwhile has the next turn, as with asyncio's futures
                if not due:  # a nested run of the loop (nest_asyncio) has told the rest
                    break
                waiting, told, context = due.popleft()
                try:
                    context.run(told, waiting)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    loop.call_exception_handler(
                        {"message": f"{told!r} raised for {waiting!r}", "exception": error, "future": waiting}
                    )
        finally:
            if due and not self._scheduled:
                self._scheduled = True
                loop.call_soon(self._tell)

    def _take(self, batch: BatchWatch) -> None:
        """Make due what waits for a batch that has ended, or for the parts of it that have."""
        self._batches.pop(batch.outcome, None)
        for cell, tellings in batch.tellings.items():
            for each in tellings:
                if cell.done() or not self._join(cell, each):
                    self._due.append(each)


class BatchWatch:
    """What one event loop waits for in one batch.

    Attributes:
        outcome: of the batch.
        tellings: what to tell of which record.
    """

    __slots__ = ("_loop_watch", "outcome", "tellings")

    def __init__(self, loop_watch: LoopWatch, outcome: BatchOutcome) -> None:
        self.outcome = outcome
        self.tellings: dict[FutureCell, tuple[Telling, ...]] = {}
        self._loop_watch = loop_watch

    def __call__(self) -> None:
        self._loop_watch.ring(self)


class _Here(threading.local):
    watch: LoopWatch | None = None


_here = _Here()
_watches: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWatch] = weakref.WeakKeyDictionary()


def loop_watch() -> LoopWatch:
    """Return the watch of the running loop; outside of a loop, that of the last one in this thread.

    Raises:
        RuntimeError: there is no loop.
    """
    watch = _here.watch
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        if watch is None:
            raise
        return watch
    if watch is None or not watch.is_of(loop):
        watch = _watches.get(loop)
        if watch is None:
            watch = _watches[loop] = LoopWatch(loop)
        _here.watch = watch
    return watch


class Wait:
    """One task's wait for a record: asyncio's task takes it for a future of its own.

    A task that is cancelled cancels what it waits for, so two tasks must not wait for the same future: each
    gets one of these, and the delivery is not cancelled with them.
    """

    __slots__ = ("_asyncio_future_blocking", "_cell", "_message", "_watch")

    def __init__(self, cell: FutureCell, watch: LoopWatch) -> None:
        self._asyncio_future_blocking = True
        self._cell = cell
        self._watch = watch
        self._message: tuple[Any, ...] | None = None

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._watch.loop

    def add_done_callback(self, told: Told, *, context: Context) -> None:
        self._watch.add(self._cell, (self, told, context))

    def cancel(self, msg: Any = None) -> bool:
        tellings = self._watch.remove(self._cell, lambda each: each[0] is self)
        if not tellings:
            return False
        self._message = () if msg is None else (msg,)
        for each in tellings:
            self._watch.soon(each)
        return True

    def result(self) -> None:
        if self._message is not None:
            raise asyncio.CancelledError(*self._message)


def wait_for_record(cell: FutureCell) -> Generator[Any, Any, None]:
    """Wait in an asyncio task until the record was delivered or has failed; for ``yield from``."""
    yield Wait(cell, loop_watch())


@final
@uncollected
class DeliveryFuture(_Cell):
    """The delivery of one record, as asyncio wants a future.

    It has the methods of ``asyncio.Future``, and ``await``, ``asyncio.wait``, ``gather``, ``wait_for``,
    ``shield``, ``as_completed``, ``timeout`` and task groups work with it; ``create_task`` wants a coroutine,
    as it does with any future. It belongs to no loop: any loop, one after the other, may wait for it, and so
    may several tasks.

    Cancelling it, or a task that waits for it, does not unsend the record. A future that was cancelled
    itself, as ``wait_for`` of Python 3.11 does, does not tell the delivery any more; ``shield`` prevents
    that.

    An error that is not looked at is not logged: ``flush`` reports the number of failed records.
    """

    __slots__ = ()

    _asyncio_future_blocking = False
    """Says that this is a future; a task never waits for it directly (``Wait``)."""

    def result(self) -> RecordMetadata:
        """Return the record's metadata.

        Raises:
            asyncio.InvalidStateError: the record is not done.
            asyncio.CancelledError: this future was cancelled.
            KafkaError: the error that the record failed with.
        """
        if not self.done():
            raise asyncio.InvalidStateError("the record is not delivered yet")
        return self.metadata()

    def exception(self) -> BaseException | None:
        """Return the error that the record failed with, None if it was delivered.

        Raises:
            asyncio.InvalidStateError: the record is not done.
            asyncio.CancelledError: this future was cancelled.
        """
        if not self.done():
            raise asyncio.InvalidStateError("the record is not delivered yet")
        error = self.outcome.error_of(self.index)
        if error is None:
            return None
        error = fresh(error)
        if isinstance(error, asyncio.CancelledError):
            raise error
        return error

    def _make_cancelled_error(self) -> asyncio.CancelledError:
        """Called by ``asyncio.gather`` for a future that was cancelled, as the next one."""
        error = self.outcome.error_of(self.index)
        return asyncio.CancelledError(*([] if error is None else error.args))

    @property
    def _cancel_message(self) -> Any:
        return next(iter(self._make_cancelled_error().args), None)

    def cancelled(self) -> bool:
        """Whether this future was cancelled; its record may be delivered all the same."""
        return self.done() and isinstance(self.outcome.error_of(self.index), asyncio.CancelledError)

    def cancel(self, msg: Any = None) -> bool:
        """Give up the delivery, but not the record; False if that is done already."""
        if self.done():
            return False
        given_up = BatchOutcome(self.outcome.topic_partition)
        given_up.fail(asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg))
        watch = loop_watch()
        tellings = watch.remove(self, lambda _: True)
        self._leave_for(given_up)
        for each in tellings:
            watch.soon(each)
        return True

    def add_done_callback(self, fn: Told, /, *, context: Context | None = None) -> None:
        """Have ``fn(future)`` called in the event loop once the record was delivered or has failed.

        Callbacks of ``add_callback`` and ``add_errback`` run on the sender's thread instead.
        """
        loop_watch().add(self, (self, fn, copy_context() if context is None else context))

    def remove_done_callback(self, fn: Told, /) -> int:
        """Forget a callback of this loop; return how often it was there."""
        return len(loop_watch().remove(self, lambda each: each[0] is self and each[1] == fn))

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop."""
        return loop_watch().loop

    def set_result(self, result: object, /) -> None:
        """Not available: only the producer completes a delivery.

        Raises:
            IllegalStateError: always.
        """
        raise IllegalStateError("only the producer completes a delivery")

    def set_exception(self, exception: object, /) -> None:
        """Not available, as ``set_result``."""
        self.set_result(exception)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.done():
            yield from wait_for_record(self)
        return self.metadata()

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        raise TypeError("a delivery future cannot be pickled or copied: pass its metadata, `await future`")

    def __repr__(self) -> str:
        if not self.done():
            state = "pending"
        elif self.cancelled():
            state = "cancelled"
        else:
            state = "delivered" if self.exception() is None else "failed"
        return f"<DeliveryFuture {self.outcome.topic_partition} {state}>"
