"""``RecordFuture``: the delivery of a record, for threads, trio tasks and asyncio tasks."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Generator
from typing import Any, ClassVar, NoReturn, Self, SupportsIndex, final

from splashdam.client.running.process import refuse_inside_a_send
from splashdam.client.waiters import SENDER_THREADS, Wake, in_trio, wait_in_thread, wait_in_trio
from splashdam.model.errors import IllegalStateError, KafkaError, KafkaTimeoutError
from splashdam.model.values import RecordMetadata
from splashdam.record.kernel import BatchOutcome, FutureCell, uncollected
from splashdam.record.kernel.outcomes import outcome_table
from splashdam.record.kernel.outcomes.outcome import fresh

logger = logging.getLogger("splashdam.client")

_here = threading.local()


@final
@uncollected
class RecordFuture(FutureCell):
    """The delivery of one record. Methods and attributes are kafka-python's, and it can be awaited.

    ``await future`` works under trio and asyncio, from any number of tasks and threads. It is an awaitable,
    not an ``asyncio.Future``: ``asyncio.gather``, ``asyncio.wait_for`` and ``trio.move_on_after`` work with
    it, ``asyncio.create_task`` and ``asyncio.wait`` want a coroutine or a task around it. Cancelling a wait
    does not unsend the record. Awaiting a record that is done already is no checkpoint.

    The result is stored in the batch, which all its records share; a lock or an event exists only while
    somebody waits.
    """

    __slots__ = ()

    error_on_callbacks: ClassVar[bool] = False
    """kafka-python's: True raises what a callback raises, where that runs in the caller's thread because the
    record is done already. On the sender's thread it is logged all the same."""

    @property
    def is_done(self) -> bool:
        """Whether the record was delivered or has failed."""
        return self.done()

    @property
    def value(self) -> RecordMetadata | None:
        """Where the record went; ``None`` while it is pending, and when it has failed."""
        return self.metadata() if self.succeeded() else None

    @property
    def exception(self) -> BaseException | None:
        """Why the record failed; ``None`` while it is pending, and when it was delivered.

        A new copy each time, which may be raised: the records of a batch share the error itself.
        """
        error = self._error()
        return None if error is None else fresh(error)

    def succeeded(self) -> bool:
        """Whether the record was delivered."""
        return self.done() and self._error() is None

    def failed(self) -> bool:
        """Whether the record has failed for good; the producer does not try it again."""
        return self._error() is not None

    def retriable(self) -> bool:
        """Whether the record has failed with an error that may pass, so that sending it again can help.

        It may have been written all the same (a time-out says nothing about it): sending again can duplicate.
        """
        error = self._error()
        return isinstance(error, KafkaError) and error.retriable

    @property
    def args(self) -> tuple[int, int, None, int, int, int]:
        """Number in its batch, timestamp (ms), None for the checksum, and the sizes of key, value and
        headers: kafka-python's attribute."""
        return self.index, self.timestamp_ms, None, self.key_size, self.value_size, self.header_size

    def chain(self, future: Any) -> Self:
        """Call ``future.success(metadata)`` or ``future.failure(error)`` once this record is done.

        For kafka-python's futures. Like callbacks, they run on the sender's thread.
        """
        return self.add_callback(future.success).add_errback(future.failure)

    def success(self, value: Any) -> NoReturn:
        """Not available: only the producer completes a delivery.

        Raises:
            IllegalStateError: always. kafka-python has this method for chained futures.
        """
        raise IllegalStateError("only the producer completes a delivery; chain it into a future of your own")

    def failure(self, error: BaseException) -> NoReturn:
        """Not available, as ``success``."""
        self.success(error)

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the delivery and return the record's metadata.

        Args:
            timeout: seconds; 0 does not wait. Default: no limit; ``delivery_timeout_ms`` ends the wait.

        Raises:
            KafkaTimeoutError: not acknowledged within ``timeout``; the record is still in progress.
            KafkaError: the error that the record failed with.
            IllegalStateError: called where it would block the sender: in a callback (see
                ``add_callback``), or in a signal handler or ``__del__`` that has interrupted a ``send``.
        """
        if not self.done():
            SENDER_THREADS.refuse("get()")
            refuse_inside_a_send("get()")
            # Asked again, since it may have ended just as the time was up.
            if not wait_in_thread(Subscription(self.outcome, self.index), timeout) and not self.done():
                raise KafkaTimeoutError(
                    f"the record for {self.outcome.topic_partition} was not acknowledged within {timeout} s;"
                    " it is still on its way"
                )
        return self.metadata()

    def __await__(self) -> Generator[Any, Any, RecordMetadata]:
        if not self.done():
            if in_trio():
                yield from wait_in_trio(Subscription(self.outcome, self.index)).__await__()
            else:
                from splashdam.client.asyncio_futures import wait_for_record  # it imports asyncio

                yield from wait_for_record(self)
        return self.metadata()

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        raise TypeError(
            "a delivery future cannot be pickled or copied: pass its metadata, `future.get()`,"
            " or within this process the future itself"
        )

    def __repr__(self) -> str:
        state = "pending" if not self.done() else "failed" if self.failed() else "delivered"
        return f"<RecordFuture {self.outcome.topic_partition} {state}>"

    def _error(self) -> BaseException | None:
        return self.outcome.error_of(self.index) if self.done() else None


class Subscription:
    """Waits for one record of a batch, or with index -1 for all of them."""

    __slots__ = ("index", "outcome")

    def __init__(self, outcome: BatchOutcome, index: int) -> None:
        self.outcome = outcome
        self.index = index

    def subscribe(self, wake: Wake) -> object | None:
        return self.outcome.add_waiter(wake, self.index)

    def unsubscribe(self, handle: Any) -> None:
        self.outcome.remove_waiter(handle)


def _enter_callbacks() -> bool:
    before = in_callback()
    _here.in_callback = True
    return before


def _leave_callbacks(before: bool) -> None:
    _here.in_callback = before


def _on_callback_error(error: BaseException) -> None:
    if not _is_callback_error(error):
        raise error
    logger.error("a delivery callback raised", exc_info=error)
    if RecordFuture.error_on_callbacks and not SENDER_THREADS.here():
        raise error


outcome_table.enter_callbacks = _enter_callbacks
outcome_table.leave_callbacks = _leave_callbacks
outcome_table.on_callback_error = _on_callback_error


def _is_callback_error(error: BaseException) -> bool:
    """Whether ``error`` concerns the callback alone and is only logged.

    On a sender's thread this includes ``SystemExit``, which would end the sender and fail all records. It
    excludes trio's cancellations, and Ctrl-C in the main thread.
    """
    if isinstance(error, Exception):
        return True
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        return False
    trio = sys.modules.get("trio")  # see waiters.py
    return SENDER_THREADS.here() and not (trio is not None and isinstance(error, trio.Cancelled))


def in_callback() -> bool:
    """Whether the caller runs in a delivery callback."""
    return getattr(_here, "in_callback", False)
