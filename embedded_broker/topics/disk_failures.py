"""Log lines about disks that refuse appends: one when it begins, one when it is over; and topic changes.

A producer retries a refused batch every 100 ms, and every partition on a full disk refuses its own: a line
for each of them would say nothing new, and would itself take space on the disk.
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
"""Milliseconds after which a failure that goes on is logged again, with the number of refused batches."""


@attrs.define(eq=False)
class _Failure:
    """One kind of failure in one data directory; it may end, and begin again.

    Attributes:
        partitions: whose last append was refused; when there are none the failure has ended.
        refused: batches since it began.
        logged_ms: when it was logged last; None: never.
        is_logged: whether it was logged since it began, so that its end is logged, too.
    """

    partitions: set[TopicPartition] = attrs.field(factory=set)
    refused: int = 0
    logged_ms: float | None = None
    is_logged: bool = False


class DiskFailures:
    """The disk failures of one broker; watches the partitions concerned until their appends succeed again.

    Args:
        clock: of the broker.
        parking: reports appends and changes of partitions.
        root_of: returns the data directory of a partition, None if this broker does not have it.
        takes_appends: returns whether this broker has a partition and leads it.
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
        # By directory and errno: messages differ, so they would be too many keys.
        self._failures: dict[tuple[str, int], _Failure] = {}
        self._change_logged_ms: dict[int, float] = {}

    def append_failed(self, topic_partition: TopicPartition, error: KafkaStorageError) -> None:
        """Report that a batch was not appended, or not synced or replicated as asked."""
        cause = (self._root_of(topic_partition) or "", _errno_of(error))
        failure = self._failures.setdefault(cause, _Failure())
        failure.partitions.add(topic_partition)
        failure.refused += 1
        self._parking.add(self, (topic_partition,))
        now_ms = self._clock.now_ms()
        # A disk that is nearly full takes small batches between large ones: still the same failure.
        if failure.logged_ms is not None and now_ms - failure.logged_ms < _REMIND_MS:
            return
        if not failure.is_logged:
            _log.error("cannot append to %s: %s", topic_partition, error.message)
        else:
            _log.error(
                "still cannot append: %d batches of %d partitions were refused, the last one of %s: %s",
                failure.refused,
                len(failure.partitions),
                topic_partition,
                error.message,
            )
        failure.logged_ms, failure.is_logged = now_ms, True

    def change_failed(self, what: str, error: BrokerResponseError) -> None:
        """Report a refused change of topics; failures of the disk are logged once a minute for each errno."""
        if not isinstance(error, KafkaStorageError):
            return
        now_ms, kind = self._clock.now_ms(), _errno_of(error)
        if now_ms - self._change_logged_ms.get(kind, -math.inf) >= _REMIND_MS:
            self._change_logged_ms[kind] = now_ms
            _log.error("cannot %s: %s", what, error.message)

    def appended(self, where: TopicPartition, size_bytes: int, is_visible: bool) -> None:
        """A partition has taken a batch; once all have, the failure is over."""
        self._leave(where, "appends to %s are taken again; %d batches were refused")

    def changed(self, where: TopicPartition) -> None:
        """Forget a partition that was deleted, or that another broker leads now."""
        if not self._takes_appends(where):
            self._leave(where, "what could not be appended to in %s is gone; %d batches were refused")

    def high_watermark_moved(self, where: TopicPartition) -> None:
        """Do nothing: only an append shows that the disk takes batches again."""

    def stable_offset_moved(self, where: TopicPartition) -> None:
        """Do nothing: only an append shows that the disk takes batches again."""

    def _leave(self, where: TopicPartition, end: str) -> None:
        self._parking.remove(self, (where,))
        for (root, _), failure in self._failures.items():
            if where not in failure.partitions:
                continue
            failure.partitions.remove(where)
            if failure.partitions:
                continue
            if failure.is_logged:
                _log.warning(end, root, failure.refused)
            failure.refused, failure.is_logged = 0, False


def _errno_of(error: KafkaStorageError) -> int:
    """Return the errno of the operating system's error; 0 if the operating system raised no error."""
    return next((cause.errno or 0 for cause in error.causes if isinstance(cause, OSError)), 0)
