"""The open batch of each partition, and the memory it reserves as it grows."""

from __future__ import annotations

from collections.abc import Container
from typing import ClassVar, Generic, NamedTuple, TypeVar

from splashdam.accumulator.batch import ProducerBatch
from splashdam.accumulator.compressions import BatchCompressions
from splashdam.accumulator.memory import BufferPool, MemoryBudget, MemoryTicket, TicketState
from splashdam.model.broker_errors import MessageTooLargeError
from splashdam.model.errors import IllegalArgumentError
from splashdam.model.values import HeaderPairs, TopicPartition
from splashdam.record.batch import HEADER_BYTES
from splashdam.record.kernel import BatchBuffer, FutureCell, PartitionLane, record_size_upper_bound
from splashdam.record.kernel.building.varint import encode_varint

FutureT = TypeVar("FutureT", bound=FutureCell)

FIRST_CAPACITY_BYTES = 1024
"""Minimum capacity of a new batch's buffer (nearly ``batch_bytes`` if that is less); doubles as it fills."""

SMALL_PART = 16
"""A batch opens with the size of its partition's last one if that is at most 1/16 of the budget, or 2/16 of
the free memory."""

POOLED_PART = 4
"""The buffer pool takes at most this part (1/4) of the budget."""

BATCH_OVERHEAD_BYTES = 900
"""Memory of a batch's objects beside its buffer, measured with the compiled twin. Without it, tiny batches
would take ten times their charge."""

PLACES_PER_BATCH = 1 << 32
"""Distance between the places of two batches: more than a batch has records, so that parts fit in between."""

_FRAMING_BYTES = record_size_upper_bound(None, None, None) - 3
"""Length, attributes and both deltas at their maximum. The 3 bytes: null key, null value, no headers."""


class Appended(Generic[FutureT]):
    """Result of ``append``: the record is in a batch.

    Attributes:
        future: its delivery future.
        wake: a batch became full or was created, so the sender must be woken.
        ticket: None; an earlier one is spent or cancelled.
    """

    __slots__ = ("future", "wake")

    ticket: ClassVar[None] = None

    def __init__(self, future: FutureT, wake: bool) -> None:
        self.future = future
        self.wake = wake


class PendingRecord(NamedTuple):
    """A record as ``BatchBuffer.try_append`` takes it."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs | None


class BatchLane(PartitionLane):
    """A partition's lane and its open batch.

    Attributes:
        batch: the open batch or None; it is published in the lane last and withdrawn first.
        last_bytes: size of the previous batch when it was closed; 0 at first.
        limit_bytes: size of a full batch: ``batch_bytes``, or what is expected to compress to it.
    """

    __slots__ = ("batch", "last_bytes", "limit_bytes")

    def __init__(self, topic_partition: TopicPartition, limit_bytes: int) -> None:
        super().__init__(topic_partition)
        self.batch: ProducerBatch | None = None
        self.last_bytes = 0
        self.limit_bytes = limit_bytes


class OpenBatches:
    """The open batch of each partition.

    The buffer of an open batch always stays one byte below its limit. So the record that fills a batch never
    takes the fast path (``PartitionLane.try_append``), which need not compare sizes, close a batch or wake
    the sender.

    Args:
        batch_bytes: size of a full batch, header included, after the expected compression.
        memory: the budget from which batches reserve their buffers.
        compressions: the expected compression ratios.
    """

    def __init__(self, batch_bytes: int, memory: MemoryBudget, compressions: BatchCompressions) -> None:
        self._lanes: dict[TopicPartition, BatchLane] = {}
        self._batch_bytes = batch_bytes
        self._memory = memory
        self._compressions = compressions
        self._opened = 0
        self.pool = BufferPool(batch_bytes - 1, memory.total_bytes // POOLED_PART, memory)

    def lane(self, topic_partition: TopicPartition) -> BatchLane:
        """Return the one lane of the partition, made on first use."""
        lane = self._lanes.get(topic_partition)
        if lane is None:
            lane = self._lanes.setdefault(topic_partition, BatchLane(topic_partition, self._batch_bytes))
        return lane

    def limit_bytes(self, topic: str) -> int:
        """Return the number of uncompressed bytes at which the topic's next batch is full."""
        if not self._compressions.used:
            return self._batch_bytes
        most_bytes = self._memory.total_bytes // SMALL_PART
        return self._compressions.limit_bytes(topic, self._batch_bytes, most_bytes)

    def forget_lanes(self, topics: Container[str]) -> None:
        """Drop the lanes of all topics but these, unless they have an open batch.

        A caller that still holds a dropped lane finds it closed and asks for the new one.
        """
        self._lanes = {
            topic_partition: lane
            for topic_partition, lane in self._lanes.items()
            if lane.batch is not None or topic_partition.topic in topics
        }
        self._compressions.forget(topics)

    def grow_and_append(
        self,
        lane: BatchLane,
        record: PendingRecord,
        upper_bytes: int,
        future_type: type[FutureT],
        expected_bytes: int = 0,
    ) -> Appended[FutureT] | None:
        """Grow the open batch and append. Close it if it is full or cannot take the record."""
        batch = lane.batch
        if batch is None:
            return None
        buffer = batch.buffer
        needed_bytes = buffer.size_bytes + upper_bytes
        if needed_bytes >= lane.limit_bytes:  # near the limit the upper bound is too coarse
            needed_bytes = buffer.size_bytes + _next_bytes(buffer, record.timestamp_ms, upper_bytes)
        if not self._grow(batch, lane.limit_bytes, needed_bytes, expected_bytes):
            self.close(batch)
            return None
        future = lane.try_append(*record, future_type)
        # An open buffer stays one byte below the limit, so only the record that fills it has grown it so far.
        full = buffer.capacity_bytes >= lane.limit_bytes
        if full or future is None:
            self.close(batch)
        return None if future is None else Appended(future, wake=full)

    def grow_within_limit(
        self, lane: BatchLane, record: PendingRecord, upper_bytes: int, future_type: type[FutureT]
    ) -> FutureT | None:
        """Grow the open batch and append; None, with nothing changed, if memory or the limit forbids it."""
        batch = lane.batch
        if batch is None:
            return None
        needed_bytes = batch.buffer.size_bytes + upper_bytes
        if needed_bytes >= lane.limit_bytes or not self._grow(batch, lane.limit_bytes, needed_bytes, 0):
            return None
        return lane.try_append(*record, future_type)

    def _grow(self, batch: ProducerBatch, limit_bytes: int, needed_bytes: int, expected_bytes: int) -> bool:
        """Grow to ``needed_bytes`` at least; if memory is free, to the expected size or twice as much."""
        if needed_bytes > limit_bytes:
            return False
        buffer = batch.buffer
        # To grow for one record at a time would copy the batch each time.
        roomy_bytes = max(2 * buffer.capacity_bytes, needed_bytes + expected_bytes)
        roomy_bytes = min(roomy_bytes, limit_bytes - 1, buffer.capacity_bytes + self._memory.free_bytes)
        wanted_bytes = max(roomy_bytes, needed_bytes)
        grown_bytes = wanted_bytes - buffer.capacity_bytes
        if grown_bytes <= 0 or not self._memory.take(grown_bytes):
            return False
        batch.charged_bytes += grown_bytes  # first: it is released even if the next line fails
        # Before the buffer takes its memory: batches and pool together stay within ``buffer_memory``.
        self.pool.shrink()
        buffer.reserve(wanted_bytes)
        return True

    def first_capacity(self, lane: BatchLane, upper_bytes: int) -> int:
        """Return the minimum capacity of a new batch for a record of at most ``upper_bytes``.

        Also set the limit of the lane's next batch.

        Raises:
            MessageTooLargeError: the record exceeds the whole budget.
        """
        needed_bytes = HEADER_BYTES + upper_bytes
        total_bytes = self._memory.total_bytes
        lane.limit_bytes = self.limit_bytes(lane.topic_partition.topic)
        if needed_bytes > total_bytes:
            raise MessageTooLargeError(
                f"a record for {lane.topic_partition} takes up to {needed_bytes} bytes, "
                f"buffer_memory is {total_bytes} in all"
            )
        return max(needed_bytes, min(self._batch_bytes - 1, FIRST_CAPACITY_BYTES, total_bytes))

    def likely_capacity(self, lane: BatchLane, least_bytes: int, expected_bytes: int) -> int:
        """Return the capacity of a new batch by the size of the last one or the expected size.

        It is the minimum, doubled as often as needed. So batches need not grow each time, and those of a
        partition that has become quiet are small again after one batch.
        """
        wanted_bytes, capacity_bytes = max(lane.last_bytes, least_bytes + expected_bytes), least_bytes
        if capacity_bytes >= wanted_bytes:
            return capacity_bytes
        while capacity_bytes < wanted_bytes:
            capacity_bytes *= 2
        likely_bytes = min(capacity_bytes, lane.limit_bytes - 1)
        memory = self._memory
        # A guess must not take memory from records that are there: a batch for which it would be a
        # large part of the memory starts small and grows.
        small = likely_bytes * SMALL_PART <= max(memory.total_bytes, 2 * memory.free_bytes)
        return likely_bytes if small and likely_bytes > least_bytes else least_bytes

    def charge(self, capacity_bytes: int) -> int:
        """Return the reservation of a new batch."""
        # Never more than the whole budget: a record that takes all of it would wait for ever.
        return min(capacity_bytes + BATCH_OVERHEAD_BYTES, self._memory.total_bytes)

    def reserve(self, ticket: MemoryTicket | None, least_bytes: int, likely_bytes: int) -> int | None:
        """Reserve memory for a new batch, from free memory or with a ready ticket.

        Returns:
            the reserved capacity: ``likely_bytes`` if available, else at least ``least_bytes``; None if even
            that is not free.

        Raises:
            IllegalArgumentError: the ticket is for less.
            IllegalStateError: the ticket was cancelled or spent before.
        """
        memory = self._memory
        if ticket is None:
            left_bytes = memory.free_bytes - BATCH_OVERHEAD_BYTES
            capacity_bytes = max(min(likely_bytes, left_bytes), least_bytes)
            if not memory.take(self.charge(capacity_bytes)):
                return None
        elif ticket.state is TicketState.WAITING:
            return None
        else:
            capacity_bytes = likely_bytes if self.charge(likely_bytes) <= ticket.needed_bytes else least_bytes
            charged_bytes = self.charge(capacity_bytes)
            if ticket.needed_bytes < charged_bytes:
                raise IllegalArgumentError(
                    f"the ticket is for {ticket.needed_bytes} bytes, this record needs {charged_bytes}"
                )
            memory.lower(ticket, charged_bytes)
            memory.spend(ticket)
        # Nothing may raise between the reservation and the return: the caller could not release it.
        return capacity_bytes

    def open(
        self,
        topic_partition: TopicPartition,
        now_ms: float,
        record: PendingRecord,
        future_type: type[FutureT],
        capacity_bytes: int,
    ) -> tuple[ProducerBatch, FutureT]:
        """Make a batch with ``record`` in reserved memory.

        Raises:
            IllegalArgumentError: the record does not fit any more: it was changed during the append.
            TypeError, OverflowError, UnicodeEncodeError: as ``BatchBuffer.try_append``.
        """
        lane = PartitionLane(topic_partition)  # private: the batch is not published yet
        charged_bytes = self.charge(capacity_bytes)
        reused_bytes = capacity_bytes if capacity_bytes == self._batch_bytes - 1 else 0
        self.pool.shrink(reused_bytes)  # a pooled buffer may become this batch's
        buffer = self.pool.take(capacity_bytes)
        place = self._opened * PLACES_PER_BATCH
        batch = ProducerBatch(topic_partition, buffer, now_ms, charged_bytes, place, recycle=self.pool.give)
        lane.open(buffer, batch.outcome)
        future = lane.try_append(*record, future_type)
        if future is None:
            raise IllegalArgumentError(f"a record for {topic_partition} was changed while it was appended")
        self._opened += 1
        if self._compressions.used:
            batch.expected_part = self._compressions.expected_part(topic_partition.topic)
        return batch, future

    def publish(self, lane: BatchLane, batch: ProducerBatch) -> None:
        """Publish the batch in its lane, the last step of opening it; close it if it is full."""
        # The fast path compares no sizes, so a lane never holds a full batch.
        if batch.buffer.capacity_bytes >= lane.limit_bytes:
            batch.close()
            return
        lane.batch = batch
        lane.open(batch.buffer, batch.outcome)

    def close(self, batch: ProducerBatch) -> None:
        """Close a batch."""
        # Withdrawn first, and its counts are read after: appends on the fast path do not take the guard
        # (docs/decisions/batch-ownership.md).
        lane = self._lanes.get(batch.topic_partition)
        if lane is not None and lane.batch is batch:
            lane.withdraw()
            lane.batch = None
            lane.last_bytes = batch.buffer.size_bytes
        batch.close()

    def close_all(self) -> None:
        """Close all open batches."""
        for batch in [lane.batch for lane in self._lanes.values() if lane.batch is not None]:
            self.close(batch)


def _next_bytes(buffer: BatchBuffer, timestamp_ms: int, upper_bytes: int) -> int:
    """Return the exact size that a record of at most ``upper_bytes`` takes as the next one in ``buffer``."""
    delta_bytes = len(encode_varint(timestamp_ms - buffer.base_timestamp_ms))
    index_bytes = len(encode_varint(buffer.record_count))
    body_bytes = upper_bytes - _FRAMING_BYTES + 1 + delta_bytes + index_bytes
    return len(encode_varint(body_bytes)) + body_bytes
