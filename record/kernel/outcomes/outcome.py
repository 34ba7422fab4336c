"""What became of a batch, and the cell a delivery future is made of (Python twin).

No lock is taken anywhere here; two rules make that safe, and both rest on the GIL:

* A result is stored before the state that announces it. Who sees the state sees the result.
* Waiters stand in a ``deque`` whose single operations (``append``, ``popleft``, ``remove`` of an object that
  compares by identity) are atomic. ``add_waiter`` appends its handle and *then* looks at the state once more;
  the completer stores the state and *then* pops until nothing is left. So either the completer finds the
  handle, or the adder sees that the batch ended and tries to take its own handle back: whoever gets it out of
  the deque acts, and the other one does not. Every waiter is called exactly once or refused exactly once.

One thread at a time completes a batch (its owner: the sender, or who holds the producer's guard); any number
of threads may add and remove waiters meanwhile.
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
    """One waiter in line: ``index`` is its record in the batch it waits for, -1 for the whole batch."""

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

    It stands in line at one part at a time, so only one thread ever goes on with it.
    """

    __slots__ = ("_handle", "_rest")

    def __init__(self, parts: Sequence[BatchOutcome], handle: Handle) -> None:
        self._rest = iter(parts)
        self._handle = handle

    def all_done(self) -> bool:
        """True if every part is done; else it stands in line at the first that is not."""
        return all(part.add_waiter(self) is None for part in self._rest)

    def __call__(self) -> None:
        if self.all_done():
            self._handle()


class BatchOutcome:
    """What became of one batch; shared by the futures of all its records.

    Attributes:
        topic_partition: where the batch goes.
        state: one of ``PENDING``, ``SUCCEEDED``, ``FAILED``, ``SPLIT``.
        base_offset: offset of the first record, -1 while unknown and with ``acks=0``.
        log_append_time_ms: the broker's append time, -1 where the topic keeps the producer's timestamps.
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
        """The broker has the batch. Does not run the waiters.

        Args:
            base_offset: offset of the first record, -1 where the broker does not tell (``acks=0``).
            log_append_time_ms: as the broker answered, -1 for none.

        Raises:
            IllegalStateError: the batch succeeded or was split before. After a failure it is ignored.
        """
        if takes(self.state, Event.SUCCEED):
            self.base_offset = base_offset
            self.log_append_time_ms = log_append_time_ms
            self.state = SUCCEEDED

    def fail(self, error: BaseException, record_errors: Mapping[int, BaseException] | None = None) -> None:
        """The batch will not be delivered. Does not run the waiters.

        Args:
            error: what became of each record; futures raise copies of it (``fresh``).
            record_errors: by index, for the records that have an error of their own.

        Raises:
            IllegalStateError: the batch succeeded or was split before. After a failure it is ignored.
        """
        if takes(self.state, Event.FAIL):
            self.error = error
            self._record_errors = record_errors
            self.state = FAILED

    def split(self, bounds: Sequence[int], children: Sequence[BatchOutcome]) -> None:
        """The records travel on in new batches: child ``i`` holds records ``bounds[i]`` to ``bounds[i + 1]``.

        Waiters of a record move to its child; waiters of the whole batch wait for all children.

        Raises:
            IllegalArgumentError: bounds do not start at 0, do not ascend or do not fit the children, or a
                child is not pending; or, when all is done, a waiter waits for a record that was not there.
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
            except Exception as error:  # the others wait for their records all the same
                problem = problem or error
        if problem is not None:
            raise problem

    def run_waiters(self) -> None:
        """Takes each waiter once and calls it. Call it after completion, outside every lock.

        A waiter that raises does not keep the others from being called; its exception goes to
        ``outcome_table.on_waiter_error``. ``KeyboardInterrupt`` and the like are raised at the end, and so is
        whatever that hook raises itself.
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
        """True once it succeeded or failed, or was split and all its parts are done."""
        if self.state == SPLIT:
            return all(part.done() for part in self._parts)
        return self.state != PENDING

    def add_waiter(self, waiter: Callable[[], None], index: int = -1) -> Handle | None:
        """Has ``waiter`` called once when record ``index`` (-1: the whole batch) is done.

        Returns:
            A handle for ``remove_waiter``; None if it is done already: then the waiter is not kept, and the
            caller acts by itself.
        """
        handle = Handle(waiter, index)
        return handle if self._enqueue(handle) else None

    def remove_waiter(self, handle: Handle) -> None:
        """Takes a waiter out of the line, if it is still there; one that is just being called may yet run."""
        handle.waiter = None
        try:
            self._waiters.remove(handle)
        except ValueError:
            for part in self._parts:
                part.remove_waiter(handle)

    def _enqueue(self, handle: Handle) -> bool:
        """True: it stands in line, or the completer has taken it and calls it. False: nothing to wait for."""
        if self.state == PENDING:
            self._waiters.append(handle)
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
        """The outcome that decides about record ``index``, through all splits, and its index there."""
        outcome = self
        while outcome.state == SPLIT:
            outcome, index = outcome._part_of(index)
        return outcome, index

    def error_of(self, index: int) -> BaseException | None:
        """Why record ``index`` failed, None if it did not (or not yet). To look at: raise ``fresh`` ones."""
        leaf, index = self.leaf_of(index)
        return (leaf._record_errors or {}).get(index, leaf.error)

    def offset_of(self, index: int) -> int:
        """The offset of record ``index``; -1 where the broker did not tell.

        Raises:
            IllegalStateError: it is not done.
            BaseException: a copy of the error it failed with.
        """
        leaf, index = self.leaf_of(index)
        if leaf.state == PENDING:
            raise IllegalStateError(f"the batch for {leaf.topic_partition} is not done")
        error = leaf.error_of(index)
        if error is not None:
            raise fresh(error)
        return -1 if leaf.base_offset < 0 else leaf.base_offset + index


def fresh(error: BaseException) -> BaseException:
    """A copy to raise or to give to an application: type, text, attributes and cause, but no traceback.

    The stored error is shared by all records of a batch, and its batch's outcome refers to it. Raising it
    itself would hang the raising frames onto it, and with them futures that refer to the outcome: a cycle
    that is never collected, since futures are not tracked.
    """
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    copy.args = error.args
    copy.__cause__ = error.__cause__
    copy.__suppress_context__ = error.__suppress_context__
    return copy


def check_parts(bounds: Sequence[int], states: Sequence[int]) -> None:
    """Refuses bounds and children that do not make a split."""
    ascending = all(low < high for low, high in pairwise(bounds))
    if not states or len(bounds) != len(states) + 1 or bounds[0] != 0 or not ascending:
        raise IllegalArgumentError(f"bounds {list(bounds)} do not divide a batch into {len(states)} parts")
    if any(state != PENDING for state in states):
        raise IllegalArgumentError("a child of a split is not pending")


FutureT = TypeVar("FutureT", bound="FutureCell")

ON_SUCCESS, ON_FAILURE = 1, 2


class FutureCell:
    """What a delivery future consists of: a batch's outcome and the record's place in the batch.

    The base of ``client``'s future, which adds methods and no slots. The compiled twin is not tracked by the
    garbage collector, so that millions of them cost nothing while they live. The price: nothing that an
    outcome keeps may lead back to one of its futures. So a batch drops its waiters when it ends, and its
    errors leave it as copies (``fresh``), which tracebacks can hang on.

    Attributes:
        outcome: the batch's.
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
        """True once this record succeeded or failed."""
        state = self.outcome.state
        if state == SPLIT:
            state = self.outcome.leaf_of(self.index)[0].state
        return state != PENDING

    def add_callback(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Self:
        """Calls ``function(*args, record_metadata, **kwargs)`` once the record was delivered.

        It runs on the sender's thread, in order of sending per partition; on a record that is done already it
        runs at once in the caller's. What it raises is logged. It may send, but not wait.
        """
        return self._call_back(ON_SUCCESS, function, args, kwargs)

    def add_errback(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Self:
        """Calls ``function(*args, error, **kwargs)`` once the record has failed; see ``add_callback``."""
        return self._call_back(ON_FAILURE, function, args, kwargs)

    def add_both(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Self:
        """``add_callback`` and ``add_errback`` with the same function."""
        return self._call_back(ON_SUCCESS | ON_FAILURE, function, args, kwargs)

    def metadata(self) -> RecordMetadata:
        """Where the record went.

        Raises:
            IllegalStateError: it is not done.
            BaseException: a copy of the error it failed with.
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

    def _call_back(
        self, kinds: int, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Self:
        callback = Callback(self, kinds, function, args, kwargs)
        if not self.outcome._enqueue(callback):
            callback()
        return self


class Callback(Handle):
    """A function of the application that waits for a record.

    The hooks of ``outcome_table`` surround it: what it raises must reach nobody else's record.
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
        self.waiter = None  # it is called itself
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
            finally:  # also if that was interrupted: a callback is called once
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
    """Class decorator: what a class without slots adds to ``FutureCell``, without the collector's share.

    The compiled twin makes a type of it that is no collector's type, which every class made in Python is: a
    third of a future's size, and of the time a ``send`` takes. It can have no subclass. Here it is the class.
    """
    return cls
