"""What is said of a disk that refuses appends: one line when it begins, one when it is over; and of one that
refuses a change of topics.

A producer repeats a refused batch every 100 ms, and each partition of a full disk refuses its own: a line for
each of them would say nothing new, and would itself take room.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import attrs

from splashdam.embedded_broker.topics.parking import FetchParking
from splashdam.model.broker_errors import BrokerResponseError, KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.net.clock import Clock

_log = logging.getLogger(__name__)

_REMIND_MS = 60_000
"""After so long a failure that goes on is said again, with how much it has refused."""


@attrs.define(eq=False)
class _Failure:
    """One thing that goes wrong in one data directory; it may be over, and begin again.

    Attributes:
        partitions: those that took nothing since they refused something; without any it is over.
        refused: how many batches, since it began.
        said_ms: when it was said last, None before the first time.
        is_told: it was said since it began; then its end is said, too.
    """

    partitions: set[TopicPartition] = attrs.field(factory=set)
    refused: int = 0
    said_ms: float | None = None
    is_told: bool = False


class DiskFailures:
    """The failures of one broker: hears what happens to the partitions that are in one.

    Args:
        clock: says when a failure is to be said again.
        parking: tells what happens to partitions.
        root_of: the data directory that a partition lies in, None for one that is not here.
        takes_appends: whether a partition is here, and led here.
    """

    def __init__(
        self,
        clock: Clock,
        parking: FetchParking,
        root_of: Callable[[TopicPartition], str | None],
        takes_appends: Callable[[TopicPartition], bool],
    ) -> None:
        self._clock = clock
        self._parking = parking
        self._root_of = root_of
        self._takes_appends = takes_appends
        # By directory and errno: as many as there are kinds of failures, however they are worded.
        self._failures: dict[tuple[str, int], _Failure] = {}
        self._kept_said_ms: dict[int, float] = {}

    def append_failed(self, topic_partition: TopicPartition, error: KafkaStorageError) -> None:
        """A batch was not appended, or is not as safe as was asked."""
        cause = (self._root_of(topic_partition) or "", _errno_of(error))
        failure = self._failures.setdefault(cause, _Failure())
        failure.partitions.add(topic_partition)
        failure.refused += 1
        self._parking.add(self, (topic_partition,))
        now_ms = self._clock.now_ms()
        # A disk that is nearly full takes small batches between large ones: that is still the same failure.
        if failure.said_ms is not None and now_ms - failure.said_ms < _REMIND_MS:
            return
        if not failure.is_told:
            _log.error("cannot append to %s: %s", topic_partition, error.message)
        else:
            _log.error(
                "still cannot append: %d batches of %d partitions were refused, at last one of %s: %s",
                failure.refused,
                len(failure.partitions),
                topic_partition,
                error.message,
            )
        failure.said_ms, failure.is_told = now_ms, True

    def change_failed(self, what: str, error: BrokerResponseError) -> None:
        """A change of topics was refused: if the disk did it, said once a minute for each kind of failure."""
        if not isinstance(error, KafkaStorageError):
            return
        now_ms, kind = self._clock.now_ms(), _errno_of(error)
        if now_ms - self._kept_said_ms.get(kind, -math.inf) >= _REMIND_MS:
            self._kept_said_ms[kind] = now_ms
            _log.error("cannot %s: %s", what, error.message)

    def appended(self, where: TopicPartition, size_bytes: int, is_visible: bool) -> None:
        """A batch was taken; once each partition in failure has taken one, the failure is over."""
        self._leave(where, "appends to %s are taken again; %d batches were refused")

    def changed(self, where: TopicPartition) -> None:
        """A partition that was deleted, or is led elsewhere now, is in no failure here any more."""
        if not self._takes_appends(where):
            self._leave(where, "what could not be appended to in %s is gone; %d batches were refused")

    def high_watermark_moved(self, where: TopicPartition) -> None:
        """Says nothing of the disk."""

    def stable_offset_moved(self, where: TopicPartition) -> None:
        """Says nothing of the disk."""

    def _leave(self, where: TopicPartition, end: str) -> None:
        self._parking.remove(self, (where,))
        for (root, _), failure in self._failures.items():
            if where not in failure.partitions:
                continue
            failure.partitions.remove(where)
            if failure.partitions:
                continue
            if failure.is_told:
                _log.warning(end, root, failure.refused)
            failure.refused, failure.is_told = 0, False


def _errno_of(error: KafkaStorageError) -> int:
    """That of the operating system, which says what the failure is; 0 where it has no part in it."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__
    return 0 if cause is None else cause.errno or 0
