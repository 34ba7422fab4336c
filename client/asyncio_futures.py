"""``DeliveryFuture``: the delivery of a record, for asyncio; and the watch of each event loop.

A record costs its future and nothing else until somebody waits for it. What is done for each record that is
waited for is in the kernel (``record/kernel/outcomes/event_loops.py``), the rest is here.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, SupportsIndex, final

from splashdam.model.errors import IllegalStateError
from splashdam.record.kernel import (
    BatchOutcome,
    FutureCell,
    LoopFuture,
    LoopWatch,
    Wait,
    uncollected,
    use_asyncio,
)

if TYPE_CHECKING:
    from splashdam.model.values import RecordMetadata
    from splashdam.record.kernel.outcomes.event_loops import Told

    class _Future(LoopFuture, asyncio.Future[RecordMetadata]):  # type: ignore[misc]  # never made: both have slots
        """What the signature of ``asyncio.wait`` asks for; it only calls the methods."""
else:
    _Future = LoopFuture


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


use_asyncio(loop_watch, asyncio._get_running_loop, asyncio.CancelledError, asyncio.InvalidStateError)


def wait_for_record(cell: FutureCell) -> Iterator[Any]:
    """Wait in an asyncio task until the record was delivered or has failed; for ``yield from``."""
    return Wait(cell, loop_watch())


def wake_after_turn(wake: Callable[[], object]) -> None:
    """Call ``wake``, in a loop that is telling several tasks of their records when all of them are told."""
    watch = _here.watch
    if watch is None or not watch.hold(wake):
        wake()


@final
@uncollected
class DeliveryFuture(_Future):
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

    def _make_cancelled_error(self) -> asyncio.CancelledError:
        """Called by ``asyncio.gather`` for a future that was cancelled, as the next one."""
        error = self.outcome.error_of(self.index)
        return asyncio.CancelledError(*([] if error is None else error.args))

    @property
    def _cancel_message(self) -> Any:
        return next(iter(self._make_cancelled_error().args), None)

    def cancel(self, msg: Any = None) -> bool:
        """Give up the delivery, but not the record; False if that is done already."""
        if self.done():
            return False
        given_up = BatchOutcome(self.outcome.topic_partition)
        given_up.fail(asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg))
        watch = loop_watch()
        # Before the outcome changes, by which the watch finds them.
        tellings = watch.remove(self, lambda _: True)
        self._leave_for(given_up)
        for each in tellings:
            watch.soon(each)
        return True

    def remove_done_callback(self, fn: Told, /) -> int:
        """Forget a callback of this loop; return how often it was there."""
        return len(loop_watch().remove(self, lambda each: each.waiting is self and each.told == fn))

    def set_result(self, result: object, /) -> None:
        """Not available: only the producer completes a delivery.

        Raises:
            IllegalStateError: always.
        """
        raise IllegalStateError("only the producer completes a delivery")

    def set_exception(self, exception: object, /) -> None:
        """Not available, as ``set_result``."""
        self.set_result(exception)

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
