"""Delivery reports of ``flush``, ``send_many`` and ``send_arrow``: counts, failures and offsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, final, overload

import attrs

from splashdam.client.future import RecordFuture
from splashdam.client.running.process import refuse_inside_a_send
from splashdam.client.waiters import SENDER_THREADS, Wake, wait_in_task, wait_in_thread
from splashdam.model.errors import KafkaTimeoutError
from splashdam.model.log_text import naming
from splashdam.model.values import TopicPartition
from splashdam.record.bulk_locations import BulkLocations, RecordLocation
from splashdam.record.kernel import FAILED, PENDING, SUCCEEDED, BatchOutcome
from splashdam.record.kernel.outcomes.outcome import fresh

Stretch = tuple[BatchOutcome, int, int]
"""Consecutive records of a batch: its outcome, index of the first, number of records."""


@attrs.frozen
class FailedRecords:
    """Records of one partition that failed with the same class of error.

    Attributes:
        topic_partition: their partition; -1 if the topic was refused.
        count: number of records.
        error: the error of the first one; the others have one of the same class.
    """

    topic_partition: TopicPartition
    count: int
    error: BaseException


@attrs.frozen
class DeliveryReport:
    """Counts of delivered, failed and pending records. ``str(report)`` is for people.

    Attributes:
        delivered: number of acknowledged records.
        failed: number of failed records; their futures have the errors.
        pending: number of records without an outcome.
        failures: the failed records by partition and class of error.
    """

    delivered: int = 0
    failed: int = 0
    pending: int = 0
    failures: tuple[FailedRecords, ...] = ()

    @property
    def count(self) -> int:
        """Total number of records."""
        return self.delivered + self.failed + self.pending

    @property
    def errors(self) -> tuple[BaseException, ...]:
        """One error of each class among the failures."""
        return tuple({type(each.error): each.error for each in reversed(self.failures)}.values())[::-1]

    def __bool__(self) -> bool:
        """True if everything was delivered."""
        return not self.failed and not self.pending

    def __str__(self) -> str:
        numbers = f"{self.delivered} delivered, {self.failed} failed, {self.pending} pending"
        causes = (
            f"{each.count} failed: {naming(each.topic_partition, str(each.error))}" for each in self.failures
        )
        return "\n  ".join([numbers, *causes])


class OutcomeCounts:
    """Counts the outcomes of records.

    Attributes:
        base_offsets: offset of the first delivered record of each partition; -1 with ``acks=0``.
    """

    def __init__(self, stretches: Iterable[Stretch]) -> None:
        self.base_offsets: dict[TopicPartition, int] = {}
        self._states: Counter[int] = Counter()
        self._causes: Counter[tuple[TopicPartition, type[BaseException]]] = Counter()
        self._errors: dict[tuple[TopicPartition, type[BaseException]], BaseException] = {}
        for stretch in stretches:
            for outcome, index, count in _leaves(*stretch):
                self._add(outcome, index, count)

    def numbers(self) -> tuple[int, int, int, tuple[FailedRecords, ...]]:
        """The arguments of a ``DeliveryReport``."""
        failures = tuple(
            FailedRecords(partition, count, fresh(self._errors[partition, kind]))
            for (partition, kind), count in self._causes.items()
        )
        return self._states[SUCCEEDED], self._states[FAILED], self._states[PENDING], failures

    def _add(self, outcome: BatchOutcome, index: int, count: int) -> None:
        error = outcome.error_of(index)
        if error is not None:
            cause = (outcome.topic_partition, type(error))
            self._errors.setdefault(cause, error)
            self._causes[cause] += count
            self._states[FAILED] += count
            return
        state = outcome.state
        self._states[state] += count
        if state == SUCCEEDED:
            self.base_offsets.setdefault(outcome.topic_partition, outcome.offset_of(index))


def report_on(stretches: Iterable[Stretch]) -> DeliveryReport:
    return DeliveryReport(*OutcomeCounts(stretches).numbers())


def _leaves(outcome: BatchOutcome, index: int, count: int) -> Iterator[Stretch]:
    """The records as stretches of final batches, after splits."""
    if outcome.state in {PENDING, SUCCEEDED}:
        yield outcome, index, count
        return
    for each in range(index, index + count):  # the batch was split, or single records failed
        leaf, inner = outcome.leaf_of(each)
        yield leaf, inner, 1


@attrs.frozen(str=False)
class BulkReport(DeliveryReport):
    """Counts for the records of one call; ``BulkDelivery.failed`` names the failed ones.

    Attributes:
        base_offsets: by partition, the offset of the call's first delivered record; -1 with ``acks=0``. The
            others follow in order, with records of other callers in between.
    """

    base_offsets: dict[int, int] = attrs.field(factory=dict)


class FailedRecord(NamedTuple):
    """A failed record.

    Attributes:
        number: index of the record in the call, from 0.
        error: its error; a copy that may be raised.
    """

    number: int
    error: BaseException


@final
class BulkDelivery(Sequence[RecordFuture]):
    """The delivery of many records, in the order in which they were given.

    Wait for all of them with ``get()`` or ``await``, at the cost of one waiter. A single record's
    ``RecordFuture`` is made on demand, by ``delivery[i]`` or by iterating. A delivery takes a few hundred
    bytes per batch, and with keys two bytes per record. It keeps nothing of the records, so the sizes in
    their ``RecordMetadata`` are -1.

    With keys, ``delivery[i]`` has to count earlier records; iterating does not.
    """

    __slots__ = ("_locations", "_open")

    def __init__(self, locations: BulkLocations) -> None:
        self._locations = locations
        self._open: list[BatchOutcome] | None = None

    def __len__(self) -> int:
        return self._locations.count

    @overload
    def __getitem__(self, number: int) -> RecordFuture: ...

    @overload
    def __getitem__(self, number: slice) -> list[RecordFuture]: ...

    def __getitem__(self, number: int | slice) -> RecordFuture | list[RecordFuture]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        number = range(len(self))[number]
        return self._future(number, self._locations.find(number))

    def __iter__(self) -> Iterator[RecordFuture]:
        for number, location in enumerate(self._locations):
            yield self._future(number, location)

    def __bool__(self) -> bool:
        """Always True; ``bool(delivery.report())`` says whether all records were delivered."""
        return True

    def done(self) -> bool:
        """Whether all records were delivered or have failed."""
        left = self._undone()
        count = len(left)
        while count and left[count - 1].done():
            count -= 1
        self._open = left[:count]  # a new list: a second thread may be using the old one
        return not count

    def get(self, timeout: float | None = None) -> BulkReport:
        """Wait until all records were delivered.

        Args:
            timeout: seconds; 0 does not wait. Default: no limit; ``delivery_timeout_ms`` ends the wait.

        Returns:
            the report; all its records are delivered.

        Raises:
            KafkaTimeoutError: not all are acknowledged within ``timeout``; the rest is still in progress.
            KafkaError: the error of the first failed record. All others are done as well; ``failed`` names
                the failed ones.
            IllegalStateError: called where it would block the sender, as ``RecordFuture.get``.
        """
        if not self.done():
            SENDER_THREADS.refuse("get()")
            refuse_inside_a_send("get()")
            if not wait_in_thread(AllDone(self._undone()), timeout) and not self.done():
                pending = self.report().pending
                raise KafkaTimeoutError(
                    f"{pending} of {len(self)} records were not acknowledged within {timeout} s;"
                    " they are still on their way"
                )
        return self._result()

    def __await__(self) -> Generator[Any, Any, BulkReport]:
        if not self.done():
            yield from wait_in_task(AllDone(self._undone()))
        return self._result()

    @property
    def failed(self) -> list[FailedRecord]:
        """The records that have failed so far, in order.

        With keys and failures this is slow, since it iterates over all records.
        """
        if all(run.outcome.state in {SUCCEEDED, PENDING} for run in self._locations.runs()):
            return []
        errors = (
            (number, location.outcome.error_of(location.position))
            for number, location in enumerate(self._locations)
        )
        return [FailedRecord(number, fresh(error)) for number, error in errors if error is not None]

    def report(self) -> BulkReport:
        """Return the current counts. Never waits, and does not raise for failed records."""
        counts = OutcomeCounts((run.outcome, run.position, run.length) for run in self._locations.runs())
        offsets = {where.partition: offset for where, offset in counts.base_offsets.items()}
        return BulkReport(*counts.numbers(), offsets)

    def __repr__(self) -> str:
        state = "pending" if not self.done() else "delivered" if self.report() else "done, with failures"
        return f"<BulkDelivery of {len(self)} records, {state}>"

    def _future(self, number: int, location: RecordLocation) -> RecordFuture:
        return RecordFuture(location.outcome, location.position, self._locations.timestamp_ms(number))

    def _undone(self) -> list[BatchOutcome]:
        """The batches that may not be done yet, in reverse order."""
        if self._open is None:
            # Reversed: the batches at its end are the oldest, which are done first.
            self._open = list(dict.fromkeys(run.outcome for run in self._locations.runs()))[::-1]
        return self._open

    def _result(self) -> BulkReport:
        report = self.report()
        if report:
            return report
        number, error = self.failed[0]
        error.add_note(
            f"record {number} of {report.count}; {report.failed} of them failed, see `failed` of the delivery"
        )
        raise error


class AllDone:
    """Waits until all batches are done; subscribes to one of them at a time."""

    __slots__ = ("_left", "_standing", "_wake")

    def __init__(self, outcomes: Iterable[BatchOutcome]) -> None:
        self._left = list(outcomes)
        self._standing: tuple[BatchOutcome, Any] | None = None
        self._wake: Wake | None = None

    def subscribe(self, wake: Wake) -> object | None:
        self._wake = wake
        return None if self._all_done() else self

    def unsubscribe(self, handle: Any) -> None:
        self._wake = None
        standing, self._standing = self._standing, None
        if standing is not None:
            outcome, waiter = standing
            outcome.remove_waiter(waiter)

    def __call__(self) -> None:
        """Continue with the next batch, on the thread that completed one."""
        # Read again, since another thread may unsubscribe in between.
        if self._wake is not None and self._all_done() and (wake := self._wake) is not None:
            wake()

    def _all_done(self) -> bool:
        while self._left:
            outcome = self._left.pop()
            waiter = outcome.add_waiter(self)
            if waiter is not None:
                self._standing = (outcome, waiter)
                return False
        return True
