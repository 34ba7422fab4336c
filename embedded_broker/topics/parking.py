"""Parked fetches, and the events that wake them: Kafka's fetch purgatory.

Consumers wait for records below the high watermark; followers wait for the end of the log and, from Fetch 18
on, for a new high watermark. Fetch sessions get the same events: a partition without any since its last read
is not read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import trio

from splashdam.model.values import TopicPartition

if TYPE_CHECKING:
    from splashdam.embedded_broker.execution.turns import Turns

_UNITS_OF_AN_ANSWER = 4
"""What a waiting fetch costs the turn that answers it, beside its reads: 80 to 160 µs."""


class FetchIsolation(Enum):
    """The offset up to which a fetch reads."""

    LOG_END = "log end"  # followers
    HIGH_WATERMARK = "high watermark"
    TXN_COMMITTED = "last stable offset"


class Watcher(Protocol):
    """Gets the events of the partitions with which it was added."""

    def appended(self, where: TopicPartition, size_bytes: int, is_visible: bool) -> None:
        """A batch was appended; it is visible if consumers may read it already."""
        ...

    def high_watermark_moved(self, where: TopicPartition) -> None:
        """Earlier batches may have become visible."""
        ...

    def stable_offset_moved(self, where: TopicPartition) -> None:
        """A transaction ended."""
        ...

    def changed(self, where: TopicPartition) -> None:
        """The leader or log start offset changed, or this broker has the partition no longer."""
        ...


class FetchWaiter:
    """One parked fetch, registered with its partitions while entered as a context manager.

    Args:
        parking: of the broker.
        partitions: of the fetch.
        isolation: how far it reads.
        wants_high_watermark: wake a follower at once when the high watermark moves.
        answer: answers the fetch without waiting, given the partitions with events, and returns true. If it
            finds too little, it returns false, and ``wait`` returns as usual; it may empty the set, for what
            it has read.

    Attributes:
        is_answered: ``answer`` has done so.
    """

    __slots__ = (
        "_answer",
        "_changed",
        "_event",
        "_failure",
        "_is_waiting",
        "_isolation",
        "_missing_bytes",
        "_parking",
        "_partitions",
        "_wants_high_watermark",
        "is_answered",
    )

    def __init__(
        self,
        parking: FetchParking,
        partitions: Iterable[TopicPartition],
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        *,
        wants_high_watermark: bool = False,
        answer: Callable[[set[TopicPartition]], bool] | None = None,
    ) -> None:
        self.is_answered = False
        self._answer = answer
        self._failure: Exception | None = None
        self._is_waiting = False
        self._parking = parking
        self._partitions = tuple(partitions)
        self._isolation = isolation
        self._wants_high_watermark = wants_high_watermark or isolation is not FetchIsolation.LOG_END
        self._missing_bytes = 0
        self._event = trio.Event()
        self._changed: set[TopicPartition] = set()

    def __enter__(self) -> FetchWaiter:
        self._parking.add(self, self._partitions)
        self._parking.parked += len(self._partitions)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._parking.parked -= len(self._partitions)
        self._parking.remove(self, self._partitions)

    def listen(self) -> set[TopicPartition]:
        """Called before the partitions are read, perhaps in several turns: later events end the wait.

        Returns:
            The partitions with events since the last call, or since this object was made.
        """
        self._missing_bytes = 0
        self._event = trio.Event()
        changed, self._changed = self._changed, set()
        return changed

    async def wait(self, missing_bytes: int) -> None:
        """Return once so many bytes were appended, or one of the partitions has changed, since ``listen``.

        What came during the read counts, too: the read may have missed it. Meanwhile ``answer_now`` may
        answer the fetch.
        """
        self._missing_bytes = missing_bytes
        self._is_waiting = True
        try:
            await self._event.wait()
        finally:
            self._is_waiting = False
            self._parking.due.pop(self, None)

    def answer_now(self) -> None:
        """Answer the fetch, if that is possible without waiting. Its errors are those of its own client."""
        if self._answer is not None:
            try:
                self.is_answered = self._answer(self._changed)
            except Exception as error:
                self._failure, self.is_answered = error, True

    def check_answer(self) -> None:
        """Raise the error of ``answer``."""
        if self._failure is not None:
            raise self._failure

    def _wake(self) -> None:
        self._event.set()
        # Once only: until its task has its turn, there may be more events.
        if self._is_waiting and self._answer is not None and not self.is_answered:
            self._parking.due[self] = None

    def appended(self, where: TopicPartition, size_bytes: int, is_visible: bool) -> None:
        """Count the bytes of an append, if this fetch may read them."""
        self._changed.add(where)
        if is_visible or self._isolation is FetchIsolation.LOG_END:
            self._missing_bytes -= size_bytes
            if self._missing_bytes <= 0:
                self._wake()

    def high_watermark_moved(self, where: TopicPartition) -> None:
        """Earlier batches may have become visible."""
        self._changed.add(where)
        if self._wants_high_watermark:
            self._wake()

    def stable_offset_moved(self, where: TopicPartition) -> None:
        """A transaction ended: batches that were counted long ago may have become readable."""
        self._changed.add(where)
        if self._isolation is FetchIsolation.TXN_COMMITTED:
            self._wake()

    def changed(self, where: TopicPartition) -> None:
        """One of the partitions was deleted or moved."""
        self._changed.add(where)
        self._event.set()

    def end(self) -> None:
        """End the wait: there will be no more events."""
        self._event.set()


class FetchParking:
    """The watchers of each partition: parked fetches, fetch sessions, disk failures.

    Attributes:
        parked: number of partitions that parked fetches wait for, counted once for each fetch.
        events: number of events reported so far, of any partition, watched or not.
        due: fetches that an event has woken, and whose tasks have not had their turn since. Whoever caused
            the event may call ``answer_now`` for them: that is a pass of the scheduler earlier.
    """

    def __init__(self) -> None:
        self.parked = 0
        self.events = 0
        self.due: dict[FetchWaiter, None] = {}
        self._waiters: dict[TopicPartition, set[Watcher]] = {}

    def answer_due(self, turns: Turns) -> None:
        """Answer fetches that the requests of this turn have woken, as long as the turn lasts."""
        due = self.due
        while due and turns.left > 0:
            turns.left -= _UNITS_OF_AN_ANSWER
            waiter = next(iter(due))  # the first that was woken
            del due[waiter]
            waiter.answer_now()

    def add(self, waiter: Watcher, partitions: Iterable[TopicPartition]) -> None:
        """Register a watcher with its partitions."""
        for topic_partition in partitions:
            self._waiters.setdefault(topic_partition, set()).add(waiter)

    def remove(self, waiter: Watcher, partitions: Iterable[TopicPartition]) -> None:
        """Remove a watcher from partitions."""
        for topic_partition in partitions:
            waiters = self._waiters.get(topic_partition)
            if waiters is not None:
                waiters.discard(waiter)
                if not waiters:
                    del self._waiters[topic_partition]

    def appended(self, topic_partition: TopicPartition, size_bytes: int, *, is_visible: bool = True) -> None:
        """Report an append.

        Args:
            topic_partition: that was appended to.
            size_bytes: of the batch.
            is_visible: whether the high watermark is at the end of the log, as without followers.
        """
        self.events += 1
        waiters = self._waiters.get(topic_partition)
        if waiters:
            for waiter in tuple(waiters):  # a copy: watchers may remove themselves
                waiter.appended(topic_partition, size_bytes, is_visible)

    def ended_transaction(
        self, topic_partition: TopicPartition, size_bytes: int, *, is_visible: bool = True
    ) -> None:
        """Report the append of a marker, which ends a transaction in the partition."""
        self.events += 1
        for waiter in tuple(self._waiters.get(topic_partition, ())):
            waiter.appended(topic_partition, size_bytes, is_visible)
            waiter.stable_offset_moved(topic_partition)

    def high_watermark_moved(self, topic_partition: TopicPartition) -> None:
        """Report that the high watermark has moved."""
        self.events += 1
        for waiter in tuple(self._waiters.get(topic_partition, ())):
            waiter.high_watermark_moved(topic_partition)

    def changed(self, topic_partition: TopicPartition) -> None:
        """Report that a partition was deleted or moved, or that its log start offset has changed."""
        self.events += 1
        for waiter in tuple(self._waiters.get(topic_partition, ())):
            waiter.changed(topic_partition)
