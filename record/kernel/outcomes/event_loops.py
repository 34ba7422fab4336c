"""Records that an event loop waits for: how batches that have ended get into it, and the futures it sees.

Waits are kept by batch: ``BatchWatch`` has the waits of one loop for one batch. When the batch ends, the
sender's thread calls it once; the loop is woken once for all batches that ended meanwhile (``LoopWatch``),
and there every wait is told. Everything but ``BatchWatch.__call__`` runs in the loop's own thread, so there
is no lock.

The loop is asyncio's or one like it; nothing of asyncio is imported here, ``client`` passes what is needed
(``use_asyncio``).

``gather`` calls eight of these methods for each record, a task that waits six. The compiled twin makes
``gather`` 2.6 times as fast and such tasks 1.3 times (``python -m benchmarks.twins``: 1,000 records in
4.1 ms, not 10.5, and in 17 ms, not 23, asyncio's own time included); docs/decisions/asyncio.md has the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ref

from splashdam.record.kernel.outcomes.outcome import BatchOutcome, FutureCell, fresh
from splashdam.record.kernel.outcomes.outcome_table import SPLIT

if TYPE_CHECKING:
    from splashdam.model.values import RecordMetadata

Told: TypeAlias = Callable[[Any], object]
"""Gets the future that is done."""


class _Asyncio:
    """What ``use_asyncio`` was given."""

    here: Callable[[], LoopWatch]
    cancelled_error: type[BaseException]
    invalid_state_error: type[Exception]


def use_asyncio(
    here: Callable[[], LoopWatch],
    running_loop: Callable[[], Any],
    cancelled_error: type[BaseException],
    invalid_state_error: type[Exception],
) -> None:
    """Tell this module what it needs of asyncio, before a ``LoopFuture`` is used.

    Args:
        here: returns the watch of the calling thread's loop.
        running_loop: returns the running loop or None; the compiled twin calls ``here`` only for another one.
        cancelled_error: ``asyncio.CancelledError``.
        invalid_state_error: ``asyncio.InvalidStateError``.
    """
    _Asyncio.here = here
    _Asyncio.cancelled_error = cancelled_error
    _Asyncio.invalid_state_error = invalid_state_error


class Telling:
    """A callback for a record: ``told(future)`` is called in the loop, once the record is done.

    Attributes:
        cell: the record's future.
        told: what is called; None once it was.
        context: where it is called; None once it was.
    """

    __slots__ = ("cell", "context", "told")

    def __init__(self, cell: FutureCell, told: Told | None, context: Context | None) -> None:
        self.cell = cell
        self.told = told
        self.context = context

    @property
    def waiting(self) -> FutureCell | Wait:
        """What ``told`` gets: the record's future, or the wait of a task."""
        return self.cell

    def tell(self) -> None:
        """Call it. It keeps nothing then: a task refers to its wait."""
        told, context = self.told, self.context
        assert told is not None
        assert context is not None
        self.told = self.context = None
        context.run(told, self.waiting)


class Wait(Telling):
    """One task's wait for a record: an iterator for ``await``, and for asyncio's task a future of its own.

    A task that is cancelled cancels what it waits for, so two tasks must not wait for the same future: each
    gets one of these, and the delivery is not cancelled with them.
    """

    __slots__ = ("_asyncio_future_blocking", "_message", "_watch")

    def __init__(self, cell: FutureCell, watch: LoopWatch) -> None:
        super().__init__(cell, None, None)
        self._asyncio_future_blocking = False
        self._message: tuple[Any, ...] | None = None
        self._watch = watch

    @property
    def waiting(self) -> Wait:
        return self

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Wait:
        if self.cell.done():
            raise StopIteration(self.cell.metadata())
        self._asyncio_future_blocking = True
        return self

    def send(self, _value: None) -> Wait:
        """See ``__next__``."""
        return self.__next__()

    def get_loop(self) -> Any:
        """Return the event loop."""
        return self._watch.loop

    def add_done_callback(self, told: Told, *, context: Context) -> None:
        """Called by the task that waits, once."""
        self.told = told
        self.context = context
        self._watch.add(self)

    def cancel(self, msg: Any = None) -> bool:
        """End the wait, but not the delivery; False if it ends anyway."""
        if not self._watch.remove(self.cell, lambda each: each is self):
            return False
        self._message = () if msg is None else (msg,)
        self._watch.soon(self)
        return True

    def result(self) -> None:
        """Called by the task before it goes on."""
        if self._message is not None:
            raise _Asyncio.cancelled_error(*self._message)


class LoopWatch:
    """What one event loop waits for. Its methods are called in the loop's thread, but for ``ring``."""

    __slots__ = ("_batches", "_due", "_ended", "_held", "_holds", "_loop", "_rung", "_scheduled", "_turn")

    def __init__(self, loop: Any) -> None:
        # Weak: an application may drop a loop while its records are still on their way.
        self._loop = ref(loop)
        self._batches: dict[BatchOutcome, BatchWatch] = {}
        self._ended: deque[BatchWatch] = deque()
        self._due: list[Telling] = []
        self._turn: list[Telling] = []
        self._held: dict[Callable[[], object], None] = {}
        self._rung = self._scheduled = self._holds = False

    @property
    def loop(self) -> Any:
        """The loop.

        Raises:
            RuntimeError: it was collected.
        """
        loop = self._loop()
        if loop is None:
            raise RuntimeError("the event loop is gone")
        return loop

    def is_of(self, loop: Any) -> bool:
        """Whether this is the loop."""
        return self._loop() is loop

    def add(self, telling: Telling) -> None:
        """Tell it in the loop once the record is done, but not in this call."""
        if telling.cell.done() or not self._join(telling):
            self.soon(telling)

    def soon(self, telling: Telling) -> None:
        """Tell it in the next turn of the loop."""
        self._schedule()
        self._due.append(telling)

    def remove(self, cell: FutureCell, is_one: Callable[[Telling], bool]) -> list[Telling]:
        """Forget those tellings about a record for which ``is_one`` is true, and return them."""
        # Those of a batch that was split may be with it and with any of its parts.
        batches = (
            list(self._batches.values()) if cell.outcome.state == SPLIT else [self._batches.get(cell.outcome)]
        )
        tellings = [each for batch in batches if batch is not None for each in batch.tellings.pop(cell, ())]
        for each in tellings:
            if not is_one(each):
                self.add(each)
        return list(filter(is_one, tellings))

    def hold(self, wake: Callable[[], object]) -> bool:
        """Call ``wake`` at the end of this turn; return False outside of one in which several are told.

        Tasks that are told in one turn send their next records in it, too. A sender that is woken by the
        first of these takes it alone, and the next ones get batches and requests of their own.
        """
        if not self._holds:
            return False
        if not self._held:
            self.loop.call_soon(self._release)  # for a loop that runs inside this turn (nest_asyncio)
        self._held[wake] = None
        return True

    def ring(self, batch: BatchWatch) -> None:
        """Tell what waits for a batch that has ended. Called in the sender's thread."""
        # Before the look at `_rung`: `_tell` clears that before it empties the queue, so either
        # its run or the wake-up below finds the batch.
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
        self._rung = False

    def _join(self, telling: Telling) -> bool:
        """Watch the record's batch; return False if that is done already."""
        outcome, index = telling.cell.outcome, telling.cell.index
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
        batch.tellings.setdefault(telling.cell, []).append(telling)
        return True

    def _schedule(self) -> None:
        if not self._scheduled:
            self.loop.call_soon(self._tell)
            self._scheduled = True

    def _tell(self) -> None:
        self._rung = self._scheduled = False
        while self._ended:
            self._take(self._ended.popleft())
        # What is added meanwhile has the next turn, as with asyncio's futures. A nested run of the loop
        # (nest_asyncio) tells the rest of this turn first.
        due, self._due = self._due, []
        due.reverse()
        self._turn[:0] = due
        self._holds = len(self._turn) > 1
        try:
            while self._turn:
                telling = self._turn.pop()
                told = telling.told
                try:
                    telling.tell()
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.loop.call_exception_handler(
                        {
                            "message": f"{told!r} raised for {telling.waiting!r}",
                            "exception": error,
                            "future": telling.waiting,
                        }
                    )
        finally:
            self._holds = False
            self._release()
            if self._turn or self._due:
                self._schedule()

    def _release(self) -> None:
        held, self._held = self._held, {}
        for wake in held:
            wake()

    def _take(self, batch: BatchWatch) -> None:
        """Make due what waits for a batch that has ended, or for the parts of it that have."""
        self._batches.pop(batch.outcome, None)
        for cell, tellings in batch.tellings.items():
            for each in tellings:
                if cell.done() or not self._join(each):
                    self._due.append(each)


class BatchWatch:
    """What one event loop waits for in one batch.

    Attributes:
        outcome: of the batch.
        tellings: what to tell of which record, in order.
    """

    __slots__ = ("_loop_watch", "outcome", "tellings")

    def __init__(self, loop_watch: LoopWatch, outcome: BatchOutcome) -> None:
        self.outcome = outcome
        self.tellings: dict[FutureCell, list[Telling]] = {}
        self._loop_watch = loop_watch

    def __call__(self) -> None:
        self._loop_watch.ring(self)


class LoopFuture(FutureCell):
    """A delivery future with those methods of ``asyncio.Future`` that are called for each record."""

    __slots__ = ()

    def result(self) -> RecordMetadata:
        """Return the record's metadata.

        Raises:
            asyncio.InvalidStateError: the record is not done.
            asyncio.CancelledError: this future was cancelled.
            KafkaError: the error that the record failed with.
        """
        if not self.done():
            raise _Asyncio.invalid_state_error("the record is not delivered yet")
        return self.metadata()

    def exception(self) -> BaseException | None:
        """Return the error that the record failed with, None if it was delivered.

        Raises:
            asyncio.InvalidStateError: the record is not done.
            asyncio.CancelledError: this future was cancelled.
        """
        if not self.done():
            raise _Asyncio.invalid_state_error("the record is not delivered yet")
        error = self.outcome.error_of(self.index)
        if error is None:
            return None
        error = fresh(error)
        if isinstance(error, _Asyncio.cancelled_error):
            raise error
        return error

    def cancelled(self) -> bool:
        """Whether this future was cancelled; its record may be delivered all the same."""
        return self.done() and isinstance(self.outcome.error_of(self.index), _Asyncio.cancelled_error)

    def add_done_callback(self, fn: Told, /, *, context: Context | None = None) -> None:
        """Have ``fn(future)`` called in the event loop once the record was delivered or has failed.

        Callbacks of ``add_callback`` and ``add_errback`` run on the sender's thread instead.
        """
        _Asyncio.here().add(Telling(self, fn, copy_context() if context is None else context))

    def get_loop(self) -> Any:
        """Return the running loop."""
        return _Asyncio.here().loop

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return Wait(self, _Asyncio.here())  # type: ignore[return-value]  # all of it that `await` uses
