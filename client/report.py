"""What ``flush`` and the calls for many records answer: how many records went where, and why some did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import attrs

from splashdam.model.log_text import naming
from splashdam.model.values import TopicPartition
from splashdam.record.kernel import FAILED, PENDING, SUCCEEDED, BatchOutcome
from splashdam.record.kernel.outcomes.outcome import fresh

Stretch = tuple[BatchOutcome, int, int]
"""Records one after the other in a batch: its outcome, index of the first, how many they are."""


@attrs.frozen
class FailedRecords:
    """Records of one partition that were given up for the same reason.

    Attributes:
        topic_partition: where they should have gone; partition -1 where the topic was refused.
        count: how many they are.
        error: of the first of them; the others have one of the same kind.
    """

    topic_partition: TopicPartition
    count: int
    error: BaseException


@attrs.frozen
class DeliveryReport:
    """What has become of some records up to now. ``str(report)`` is for people.

    Attributes:
        delivered: how many records the cluster has.
        failed: how many were given up; their futures say why.
        pending: how many are still on their way.
        failures: the failed ones by partition and kind of error.
    """

    delivered: int = 0
    failed: int = 0
    pending: int = 0
    failures: tuple[FailedRecords, ...] = ()

    @property
    def count(self) -> int:
        """How many records it is about."""
        return self.delivered + self.failed + self.pending

    @property
    def errors(self) -> tuple[BaseException, ...]:
        """One error of each kind among the failed."""
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


class Tally:
    """Counts what has become of records.

    Attributes:
        base_offsets: of the first delivered record of each partition; -1 with ``acks=0``.
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
    """What has become of these records."""
    return DeliveryReport(*Tally(stretches).numbers())


def _leaves(outcome: BatchOutcome, index: int, count: int) -> Iterator[Stretch]:
    """The outcomes that decide about the records, where they begin in each, and for how many each does."""
    if outcome.state in {PENDING, SUCCEEDED}:
        yield outcome, index, count
        return
    for each in range(index, index + count):  # of a batch that was split, or whose records failed one by one
        leaf, inner = outcome.leaf_of(each)
        yield leaf, inner, 1
