"""The outcome of a batch, shared by the delivery futures of its records, and the base of those futures.

No lock is taken here. Two rules make that safe, and both rely on the GIL:

* A result is stored before the state that announces it: a thread that sees the state sees the result.
* Waiters are in a ``deque`` whose single operations (``append``, ``popleft``, ``remove`` of an object that
  compares by identity) are atomic. ``add_waiter`` appends its handle and *then* checks the state again; the
  completing thread stores the state and *then* pops until the deque is empty. So either the completing thread
  finds the handle, or the adding thread sees that the batch is done and tries to remove its handle. The one
  that gets it out of the deque acts on it: every waiter is called exactly once or rejected exactly once.

One thread at a time completes a batch: the sender, or the holder of the producer's guard. Any number of
threads may add and remove waiters meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Self, TypeVar

from splashdam.model.errors import IllegalArgumentError, IllegalStateError
from splashdam.model.values import RecordMetadata, TopicPartition
from splashdam.record.kernel.outcomes import outcome_table
from splashdam.record.kernel.outcomes.outcome_table import FAILED, PENDING, SPLIT, SUCCEEDED, Event, takes


class Handle:
    """A waiter in the queue of a batch; ``index`` is its record there, -1 for the whole batch."""

    __slots__ = ("index", "waiter")

    def __init__(self, waiter: Callable[[], None], index: int) -> None:
        self.waiter: Callable[[], None] | None = waiter
        self.index = index

    def __call__(self) -> None:
        waiter = self.waiter
        if waiter is not None:
            waiter()


class AllOf:
    """Waits for the parts of a split batch, one after the other, then calls the handle.

    It is in the queue of one part at a time, so only one thread runs it.
    """

    __slots__ = ("_handle", "_rest")

    def __init__(self, parts: Sequence[BatchOutcome], handle: Handle) -> None:
        self._rest = iter(parts)
        self._handle = handle

    def all_done(self) -> bool:
        """Return whether all parts are done; else join the queue of the first that is not."""
        return all(part.add_waiter(self) is None for part in self._rest)

    def __call__(self) -> None:
        if self.all_done():
            self._handle()


class BatchOutcome:
    """The outcome of one batch, shared by the futures of all its records.

    Attributes:
        topic_partition: partition of the batch.
        state: one of ``PENDING``, ``SUCCEEDED``, ``FAILED``, ``SPLIT``.
        base_offset: offset of the first record, -1 while unknown and with ``acks=0``.
        log_append_time_ms: the broker's append time, -1 if the topic keeps the producer's timestamps.
        error: why the batch failed, else None.
    """

    __slots__ = (
        "_bounds",
        "_parts",
        "_record_errors",
        "_waiters",
        "base_offset",
        "error",
        "log_append_time_ms",
        "state",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.state = PENDING
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.error: BaseException | None = None
        self._record_errors: Mapping[int, BaseException] | None = None
        self._bounds: Sequence[int] = ()
        self._parts: Sequence[BatchOutcome] = ()
        self._waiters: deque[Handle] = deque()

    def succeed(self, base_offset: int, log_append_time_ms: int) -> None:
        """Mark the batch as delivered, without running waiters. Ignored after a failure.

        Args:
            base_offset: offset of the first record, -1 if unknown (``acks=0``).
            log_append_time_ms: from the broker's response, -1 for none.

        Raises:
            IllegalStateError: the batch succeeded or was split before.
        """
        if takes(self.state, Event.SUCCEED):
            self.base_offset = base_offset
            self.log_append_time_ms = log_append_time_ms
            # Last: a thread that sees the state sees the result.
            self.state = SUCCEEDED

    def fail(self, error: BaseException, record_errors: Mapping[int, BaseException] | None = None) -> None:
        """Mark the batch as failed, without running waiters. Ignored after a failure.

        Args:
            error: error of each record; futures raise copies of it (``fresh``).
            record_errors: by index, for records that have an error of their own.

        Raises:
            IllegalStateError: the batch succeeded or was split before.
        """
        if takes(self.state, Event.FAIL):
            self.error = error
            self._record_errors = record_errors
            # Last, as above.
            self.state = FAILED

    def split(self, bounds: Sequence[int], children: Sequence[BatchOutcome]) -> None:
        """Split the batch: child ``i`` has records ``bounds[i]`` to ``bounds[i + 1]``.

        Waiters of a record move to its child; waiters of the whole batch wait for all children.

        Raises:
            IllegalArgumentError: the bounds do not start at 0, do not ascend or do not match the children, or
                a child is not pending; or, after the split, a waiter waits for a record that does not exist.
            IllegalStateError: the batch is not pending.
        """
        bounds, children = tuple(bounds), tuple(children)
        check_parts(bounds, [child.state for child in children])
        takes(self.state, Event.SPLIT)
        self._bounds = bounds
        self._parts = children
        self.state = SPLIT
        problem: Exception | None = None
        for handle in self._take_waiters():
            try:
                self._enqueue_at_parts(handle)
            except Exception as error:  # the other waiters are moved nevertheless
                problem = problem or error
        if problem is not None:
            raise problem

    def run_waiters(self) -> None:
        """Call each waiter once. Call this after completion, without any lock.

        An exception of a waiter goes to ``outcome_table.on_waiter_error``, and the other waiters are called
        nevertheless. ``KeyboardInterrupt`` and the like, and exceptions of that hook, are raised at the end.
        """
        interrupt: BaseException | None = None
        for waiter in self._take_waiters():
            try:
                try:
                    waiter()
                except Exception as error:
                    outcome_table.on_waiter_error(error)
            except BaseException as error:
                if interrupt is None or not isinstance(error, Exception):
                    interrupt = error
        if interrupt is not None:
            raise interrupt

    def _take_waiters(self) -> Iterator[Handle]:
        while True:
            try:
                yield self._waiters.popleft()
            except IndexError:
                return

    def done(self) -> bool:
        """Return whether it succeeded or failed, or was split and all parts are done."""
        if self.state == SPLIT:
            return all(part.done() for part in self._parts)
        return self.state != PENDING

    def add_waiter(self, waiter: Callable[[], None], index: int = -1) -> Handle | None:
        """Call ``waiter`` once when record ``index`` (-1: the whole batch) is done.

        Returns:
            A handle for ``remove_waiter``; None if it is done already: then the waiter is not called.
        """
        handle = Handle(waiter, index)
        return handle if self._enqueue(handle) else None

    def remove_waiter(self, handle: Handle) -> None:
        """Remove a waiter, if it is still in the queue; one that is being called may still run."""
        # First: a completing thread that has taken the handle calls nothing then.
        handle.waiter = None
        try:
            self._waiters.remove(handle)
        except ValueError:
            for part in self._parts:
                part.remove_waiter(handle)

    def _enqueue(self, handle: Handle) -> bool:
        """Return True if the handle is queued or taken by the completing thread; False: already done."""
        if self.state == PENDING:
            self._waiters.append(handle)
            # Read again after the append: else the completing thread may have emptied the queue in between.
            if self.state == PENDING:
                return True
            try:
                self._waiters.remove(handle)
            except ValueError:
                return True
        return self.state == SPLIT and self._enqueue_at_parts(handle)

    def _enqueue_at_parts(self, handle: Handle) -> bool:
        if handle.index < 0:
            return not AllOf(self._parts, handle).all_done()
        part, handle.index = self._part_of(handle.index)
        return part._enqueue(handle)

    def _part_of(self, index: int) -> tuple[BatchOutcome, int]:
        if not 0 <= index < self._bounds[-1]:
            raise IllegalArgumentError(f"record {index} of a batch that held {self._bounds[-1]}")
        at = bisect_right(self._bounds, index) - 1
        return self._parts[at], index - self._bounds[at]

    def leaf_of(self, index: int) -> tuple[BatchOutcome, int]:
        """Follow all splits: return the outcome of record ``index``, and its index there."""
        outcome = self
        while outcome.state == SPLIT:
            outcome, index = outcome._part_of(index)
        return outcome, index

    def error_of(self, index: int) -> BaseException | None:
        """Return the error of record ``index``, or None. Do not raise it: raise a ``fresh`` copy."""
        leaf, index = self.leaf_of(index)
        return (leaf._record_errors or {}).get(index, leaf.error)

    def offset_of(self, index: int) -> int:
        """Return the offset of record ``index``; -1 if the broker did not send it.

        Raises:
            IllegalStateError: the batch is not done.
            BaseException: a copy of the record's error.
        """
        leaf, index = self.leaf_of(index)
        if leaf.state == PENDING:
            raise IllegalStateError(f"the batch for {leaf.topic_partition} is not done")
        error = leaf.error_of(index)
        if error is not None:
            raise fresh(error)
        return -1 if leaf.base_offset < 0 else leaf.base_offset + index


def fresh(error: BaseException) -> BaseException:
    """Copy an error to raise it or pass it on: with type, text, attributes and cause, without traceback.

    The stored error belongs to the batch's outcome. Raising it would attach the raising frames to it, and
    with them futures that refer to the outcome: a cycle that is never collected, since the compiled twin's
    futures are not tracked by the garbage collector.
    """
    # Without ``__init__``, whose arguments may be others than ``args``.
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    copy.args = error.args
    copy.__cause__ = error.__cause__
    copy.__suppress_context__ = error.__suppress_context__
    return copy


def check_parts(bounds: Sequence[int], states: Sequence[int]) -> None:
    """Raise if bounds and children do not make a split."""
    ascending = all(low < high for low, high in pairwise(bounds))
    if not states or len(bounds) != len(states) + 1 or bounds[0] != 0 or not ascending:
        raise IllegalArgumentError(f"bounds {list(bounds)} do not divide a batch into {len(states)} parts")
    if any(state != PENDING for state in states):
        raise IllegalArgumentError("a child of a split is not pending")


FutureT = TypeVar("FutureT", bound="FutureCell")

ON_SUCCESS, ON_FAILURE = 1, 2


class FutureCell:
    """The data of a delivery future: a batch's outcome, and the record's index in the batch.

    Base of ``client``'s future, which adds methods and no slots. The compiled twin is not tracked by the
    garbage collector, so that millions of futures cost it no time. The price: nothing that an outcome keeps
    may refer to one of its futures. So a batch drops its waiters when it is done, and its errors are passed
    on as copies (``fresh``), which may get tracebacks.

    Attributes:
        outcome: of the batch.
        index: of the record in the batch, from 0.
        timestamp_ms: the record's own.
        key_size: bytes, -1 for a null key.
        value_size: bytes, -1 for a null value.
        header_size: bytes of UTF-8 keys and values, -1 without headers.
    """

    __slots__ = ("header_size", "index", "key_size", "outcome", "timestamp_ms", "value_size")

    def __init__(  # noqa: PLR0917  # one per record: positional arguments cost half as much
        self,
        outcome: BatchOutcome,
        index: int,
        timestamp_ms: int,
        key_size: int = -1,
        value_size: int = -1,
        header_size: int = -1,
    ) -> None:
        self.outcome = outcome
        self.index = index
        self.timestamp_ms = timestamp_ms
        self.key_size = key_size
        self.value_size = value_size
        self.header_size = header_size

    def done(self) -> bool:
        """Return whether the record succeeded or failed."""
        state = self.outcome.state
        if state == SPLIT:
            state = self.outcome.leaf_of(self.index)[0].state
        return state != PENDING

    def add_callback(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Self:
        """Call ``function(*args, record_metadata, **kwargs)`` once the record was delivered.

        It runs in the sender's thread, in the order of sending per partition; if the record is done already,
        at once in the caller's thread. Its exceptions are logged. It may send, but must not wait.
        """
        return self._call_back(ON_SUCCESS, function, args, kwargs)

    def add_errback(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Self:
        """Call ``function(*args, error, **kwargs)`` once the record has failed; see ``add_callback``."""
        return self._call_back(ON_FAILURE, function, args, kwargs)

    def add_both(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Self:
        """``add_callback`` and ``add_errback`` with the same function."""
        return self._call_back(ON_SUCCESS | ON_FAILURE, function, args, kwargs)

    def metadata(self) -> RecordMetadata:
        """Return the record's metadata.

        Raises:
            IllegalStateError: the record is not done.
            BaseException: a copy of the record's error.
        """
        leaf, index = self.outcome.leaf_of(self.index)
        topic_partition = leaf.topic_partition
        appended_ms = leaf.log_append_time_ms
        return RecordMetadata(
            topic_partition.topic,
            topic_partition.partition,
            topic_partition,
            leaf.offset_of(index),
            self.timestamp_ms if appended_ms < 0 else appended_ms,
            None,
            self.key_size,
            self.value_size,
            self.header_size,
        )

    def _leave_for(self, outcome: BatchOutcome) -> None:
        """Take the result from another outcome from now on; that of the record's batch is of no interest."""
        self.outcome = outcome

    def _call_back(
        self, kinds: int, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Self:
        callback = Callback(self, kinds, function, args, kwargs)
        if not self.outcome._enqueue(callback):
            callback()
        return self


class Callback(Handle):
    """A callback of the application for a record.

    It runs between the hooks of ``outcome_table``; its exceptions must not affect other records.
    """

    __slots__ = ("_args", "_function", "_future", "_kinds", "_kwargs")

    def __init__(
        self,
        future: FutureCell,
        kinds: int,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.waiter = None  # the callback itself is called
        self.index = future.index
        self._future = future
        self._kinds = kinds
        self._function = function
        self._args = args
        self._kwargs = kwargs

    def __call__(self) -> None:
        future = self._future
        error = future.outcome.error_of(future.index)
        if not self._kinds & (ON_SUCCESS if error is None else ON_FAILURE):
            return
        inside = before = False
        try:
            try:
                before = outcome_table.enter_callbacks()
                inside = True
            finally:  # even if that was interrupted: a callback is called once
                self._tell(error)
        finally:
            if inside:
                outcome_table.leave_callbacks(before)

    def _tell(self, error: BaseException | None) -> None:
        try:
            result = self._future.metadata() if error is None else fresh(error)
            self._function(*self._args, result, **self._kwargs)
        except BaseException as raised:
            outcome_table.on_callback_error(raised)


def uncollected(cls: type[FutureT]) -> type[FutureT]:
    """Class decorator: exclude a subclass of ``FutureCell`` from garbage collection, in the compiled twin.

    Every class made in Python is a type of the garbage collector. The compiled twin makes one that is not,
    which saves a third of a future's size and of the time of a ``send``. It can have no subclasses. Here it
    is returned unchanged.
    """
    return cls
