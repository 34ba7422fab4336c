"""What a delivery future is made of, and the callbacks of applications."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

from splashdam.model.values import RecordMetadata
from splashdam.record.kernel.outcomes import outcome_table
from splashdam.record.kernel.outcomes.outcome import BatchOutcome, Handle, fresh
from splashdam.record.kernel.outcomes.outcome_table import PENDING, SPLIT

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
