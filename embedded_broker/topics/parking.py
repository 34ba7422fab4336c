"""Parked fetches and what wakes them: bytes, the end of a transaction, a partition that went (facts B23).

Consumers wait for what is below the high watermark, followers for the end of the log and, from Fetch 18 on,
for a high watermark that they do not know. Fetch sessions hear of the same events: a partition of which none
came since it was read last is not read again.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from types import TracebackType
from typing import Protocol

import trio

from splashdam.model.values import TopicPartition


class FetchIsolation(Enum):
    """How far into a log a fetch reads."""

    LOG_END = "log end"  # followers
    HIGH_WATERMARK = "high watermark"
    TXN_COMMITTED = "last stable offset"


class Watcher(Protocol):
    """Who hears what happens to the partitions that it was added with."""

    def appended(self, where: TopicPartition, size_bytes: int, is_visible: bool) -> None:
        """The log grew; visible is what consumers may read already."""
        ...

    def high_watermark_moved(self, where: TopicPartition) -> None:
        """What was appended earlier may be readable now."""
        ...

    def stable_offset_moved(self, where: TopicPartition) -> None:
        """A transaction ended."""
        ...

    def changed(self, where: TopicPartition) -> None:
        """Something else than the end of the log changed: leader, start, or whether it is here at all."""
        ...


class FetchWaiter:
    """One parked fetch, registered with its partitions while entered as a context manager.

    Args:
        parking: where.
        partitions: what it waits for.
        isolation: how far it reads.
        wants_high_watermark: a follower that is to hear at once of a high watermark that moved.
    """

    __slots__ = (
        "_event",
        "_isolation",
        "_missing_bytes",
        "_parking",
        "_partitions",
        "_wants_high_watermark",
    )

    def __init__(
        self,
        parking: FetchParking,
        partitions: Iterable[TopicPartition],
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        *,
        wants_high_watermark: bool = False,
    ) -> None:
        self._parking = parking
        self._partitions = tuple(partitions)
        self._isolation = isolation
        self._wants_high_watermark = wants_high_watermark or isolation is not FetchIsolation.LOG_END
        self._missing_bytes = 0
        self._event = trio.Event()

    def __enter__(self) -> FetchWaiter:
        self._parking.add(self, self._partitions)
        self._parking.parked += len(self._partitions)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._parking.parked -= len(self._partitions)
        self._parking.remove(self, self._partitions)

    def listen(self) -> None:
        """A look at the partitions begins, of several turns perhaps: what comes meanwhile ends the wait."""
        self._missing_bytes = 0
        self._event = trio.Event()

    async def wait(self, missing_bytes: int) -> None:
        """Returns once so many bytes were appended to the partitions, or when one of them changed.

        Or at once, where that was so since ``listen``: then nobody knows what the look has seen of it.
        """
        self._missing_bytes = missing_bytes
        await self._event.wait()

    def appended(self, where: TopicPartition, size_bytes: int, is_visible: bool) -> None:
        """Counts bytes of an append, where this fetch may read them already."""
        if is_visible or self._isolation is FetchIsolation.LOG_END:
            self._missing_bytes -= size_bytes
            if self._missing_bytes <= 0:
                self._event.set()

    def high_watermark_moved(self, where: TopicPartition) -> None:
        """What was appended earlier may be readable now."""
        if self._wants_high_watermark:
            self._event.set()

    def stable_offset_moved(self, where: TopicPartition) -> None:
        """A transaction ended, which may make readable what was appended, and counted, long ago."""
        if self._isolation is FetchIsolation.TXN_COMMITTED:
            self._event.set()

    def changed(self, where: TopicPartition) -> None:
        """One of the partitions was deleted or moved."""
        self._event.set()

    def end(self) -> None:
        """Nobody tells it of its partitions any more."""
        self._event.set()


class FetchParking:
    """Which parked fetches, and which sessions, wait for which partition.

    Attributes:
        parked: for how many partitions fetches wait at the moment, all of them together.
    """

    def __init__(self) -> None:
        self.parked = 0
        self._waiters: dict[TopicPartition, set[Watcher]] = {}

    def add(self, waiter: Watcher, partitions: Iterable[TopicPartition]) -> None:
        """Registers a waiter with its partitions."""
        for topic_partition in partitions:
            self._waiters.setdefault(topic_partition, set()).add(waiter)

    def remove(self, waiter: Watcher, partitions: Iterable[TopicPartition]) -> None:
        """Forgets a waiter."""
        for topic_partition in partitions:
            waiters = self._waiters.get(topic_partition)
            if waiters is not None:
                waiters.discard(waiter)
                if not waiters:
                    del self._waiters[topic_partition]

    def appended(self, topic_partition: TopicPartition, size_bytes: int, *, is_visible: bool = True) -> None:
        """Tells the fetches of a partition that it grew.

        Args:
            topic_partition: which.
            size_bytes: by how much.
            is_visible: whether the high watermark is at the log's end again, as without followers.
        """
        waiters = self._waiters.get(topic_partition)
        if waiters:
            for waiter in tuple(waiters):  # who has heard enough goes
                waiter.appended(topic_partition, size_bytes, is_visible)

    def ended_transaction(
        self, topic_partition: TopicPartition, size_bytes: int, *, is_visible: bool = True
    ) -> None:
        """Tells the fetches of a partition that it grew by a marker, which ends a transaction there."""
        for waiter in tuple(self._waiters.get(topic_partition, ())):
            waiter.appended(topic_partition, size_bytes, is_visible)
            waiter.stable_offset_moved(topic_partition)

    def high_watermark_moved(self, topic_partition: TopicPartition) -> None:
        """Tells the fetches of a partition that followers have more of it than before."""
        for waiter in tuple(self._waiters.get(topic_partition, ())):
            waiter.high_watermark_moved(topic_partition)

    def changed(self, topic_partition: TopicPartition) -> None:
        """Tells the fetches of a partition that it was deleted or moved, or starts elsewhere."""
        for waiter in tuple(self._waiters.get(topic_partition, ())):
            waiter.changed(topic_partition)
