"""The batches that take records: one per partition, and the memory they reserve as they grow."""

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
"""What a new batch's buffer holds at least (nearly ``batch_bytes`` if that is less); doubles as it fills."""

SMALL_PART = 16
"""A batch opens with what its partition's last one held, if that is at most this part of the budget, or twice
this part of what is free."""

POOLED_PART = 4
"""Full-size buffers that wait for their next batch take at most this part of the budget."""

BATCH_OVERHEAD_BYTES = 900
"""What a batch takes beside its buffer: its objects, as measured with the compiled twin. Without it, tiny
batches would take ten times what they are charged."""

PLACES_PER_BATCH = 1 << 32
"""Places of batches are this far apart: more than one has records, so its parts find theirs in between."""

_FRAMING_BYTES = record_size_upper_bound(None, None, None) - 3
"""Length, attributes and both deltas at their longest. The 3: null key, null value, no headers."""


class Appended(Generic[FutureT]):
    """The record is in a batch.

    Attributes:
        future: its delivery future.
        wake: a batch became full or a new one was created; the sender must hear of it.
        ticket: None; an earlier one is spent or cancelled.
    """

    __slots__ = ("future", "wake")

    ticket: ClassVar[None] = None

    def __init__(self, future: FutureT, wake: bool) -> None:
        self.future = future
        self.wake = wake


class PendingRecord(NamedTuple):
    """A record that is to be appended, as ``BatchBuffer.try_append`` takes it."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs | None


class BatchLane(PartitionLane):
    """A partition's lane, and the batch that takes records there.

    Attributes:
        batch: the open batch, None where there is none; it is published in the lane last, withdrawn first.
        last_bytes: what the batch before it held when it was closed; 0 at first.
        limit_bytes: at which the batch is full: ``batch_bytes``, or what compresses to that.
    """

    __slots__ = ("batch", "last_bytes", "limit_bytes")

    def __init__(self, topic_partition: TopicPartition, limit_bytes: int) -> None:
        super().__init__(topic_partition)
        self.batch: ProducerBatch | None = None
        self.last_bytes = 0
        self.limit_bytes = limit_bytes


class OpenBatches:
    """The last batch of each partition, while it takes records.

    The buffer of an open batch always stays below its limit. So the record that fills a batch never
    comes the short way (``PartitionLane.try_append``), and whoever brings it closes the batch and wakes the
    sender.

    Args:
        batch_bytes: size limit of a batch, header included: uncompressed, or as compression is expected to
            make it.
        memory: the budget of which batches reserve what their buffers hold.
        compressions: what is expected of compression.
    """

    def __init__(self, batch_bytes: int, memory: MemoryBudget, compressions: BatchCompressions) -> None:
        self._lanes: dict[TopicPartition, BatchLane] = {}
        self._batch_bytes = batch_bytes
        self._memory = memory
        self._compressions = compressions
        self._opened = 0
        self.pool = BufferPool(batch_bytes - 1, memory.total_bytes // POOLED_PART, memory)

    def lane(self, topic_partition: TopicPartition) -> BatchLane:
        """The partition's one lane."""
        lane = self._lanes.get(topic_partition)
        if lane is None:
            lane = self._lanes.setdefault(topic_partition, BatchLane(topic_partition, self._batch_bytes))
        return lane

    def limit_bytes(self, topic: str) -> int:
        """At how many uncompressed bytes the topic's next batch is full."""
        if not self._compressions.used:
            return self._batch_bytes
        most_bytes = self._memory.total_bytes // SMALL_PART
        return self._compressions.limit_bytes(topic, self._batch_bytes, most_bytes)

    def forget_lanes(self, topics: Container[str]) -> None:
        """Drops the lanes of other topics than these where no batch takes records.

        Whoever still has one finds that it takes nothing, and asks for the new one.
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
        """Appends after the open batch has grown. One that is full or cannot take the record is closed."""
        batch = lane.batch
        if batch is None:
            return None
        buffer = batch.buffer
        needed_bytes = buffer.size_bytes + upper_bytes
        if needed_bytes >= lane.limit_bytes:  # it is about the last bytes: the bound is not enough
            needed_bytes = buffer.size_bytes + _next_bytes(buffer, record.timestamp_ms, upper_bytes)
        if not self._grow(batch, lane.limit_bytes, needed_bytes, expected_bytes):
            self.close(batch)
            return None
        future = lane.try_append(*record, future_type)
        full = buffer.capacity_bytes >= lane.limit_bytes
        if full or future is None:
            self.close(batch)
        return None if future is None else Appended(future, wake=full)

    def _grow(self, batch: ProducerBatch, limit_bytes: int, needed_bytes: int, expected_bytes: int) -> bool:
        """Reserves for ``needed_bytes``; as far as is free, for what is expected or twice the present size.

        Never for just one record where there is more: each growth copies what the batch holds.
        """
        if needed_bytes > limit_bytes:
            return False
        buffer = batch.buffer
        roomy_bytes = max(2 * buffer.capacity_bytes, needed_bytes + expected_bytes)
        roomy_bytes = min(roomy_bytes, limit_bytes - 1, buffer.capacity_bytes + self._memory.free_bytes)
        wanted_bytes = max(roomy_bytes, needed_bytes)
        grown_bytes = wanted_bytes - buffer.capacity_bytes
        if grown_bytes <= 0 or not self._memory.take(grown_bytes):
            return False
        batch.charged_bytes += grown_bytes  # first: it is given back even if the next line fails
        self.pool.shrink()
        buffer.reserve(wanted_bytes)
        return True

    def first_capacity(self, lane: BatchLane, upper_bytes: int) -> int:
        """What the buffer of a new batch holds at least, for a record of at most ``upper_bytes``.

        Its limit is set here, and stays as long as it takes records.

        Raises:
            MessageTooLargeError: more than the whole budget.
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
        """What the buffer of a new batch should hold: as much as the last one did, or what is expected.

        It is the least, doubled as often as needed. So a partition's batches need not grow each time, and
        those of a partition that has become quiet are small again after one. Where that would be a large part
        of the memory, a batch grows as it fills.
        """
        wanted_bytes, capacity_bytes = max(lane.last_bytes, least_bytes + expected_bytes), least_bytes
        if capacity_bytes >= wanted_bytes:
            return capacity_bytes
        while capacity_bytes < wanted_bytes:
            capacity_bytes *= 2
        likely_bytes = min(capacity_bytes, lane.limit_bytes - 1)
        memory = self._memory
        small = likely_bytes * SMALL_PART <= max(memory.total_bytes, 2 * memory.free_bytes)
        return likely_bytes if small and likely_bytes > least_bytes else least_bytes

    def charge(self, capacity_bytes: int) -> int:
        """What a new batch reserves: never more than there is, or its record would wait for ever."""
        return min(capacity_bytes + BATCH_OVERHEAD_BYTES, self._memory.total_bytes)

    def reserve(self, ticket: MemoryTicket | None, least_bytes: int, likely_bytes: int) -> int | None:
        """Reserves memory for a new batch, at once or with a ticket that is ready.

        Returns:
            the capacity it is for: what is likely as far as it is there, and not less than the least; None if
            there is not even that.

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
        return capacity_bytes  # at once: who has not got it cannot give it back

    def open(
        self,
        topic_partition: TopicPartition,
        now_ms: float,
        record: PendingRecord,
        future_type: type[FutureT],
        capacity_bytes: int,
    ) -> tuple[ProducerBatch, FutureT]:
        """A new batch that holds ``record``, in memory that was reserved.

        Raises:
            IllegalArgumentError: the record does not fit any more: somebody has changed it meanwhile.
            TypeError, OverflowError, UnicodeEncodeError: as ``BatchBuffer.try_append``.
        """
        lane = PartitionLane(topic_partition)  # nobody else sees it: the batch is not published yet
        charged_bytes = self.charge(capacity_bytes)
        reused_bytes = capacity_bytes if capacity_bytes == self._batch_bytes - 1 else 0
        self.pool.shrink(reused_bytes)  # one of those may become this batch's
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
        """The batch takes records from now on; the last step of its opening. One that is full is closed."""
        if batch.buffer.capacity_bytes >= lane.limit_bytes:
            batch.close()
            return
        lane.batch = batch
        lane.open(batch.buffer, batch.outcome)

    def close(self, batch: ProducerBatch) -> None:
        """The batch takes no more records: it is withdrawn first, and what it holds is read after."""
        lane = self._lanes.get(batch.topic_partition)
        if lane is not None and lane.batch is batch:
            lane.withdraw()
            lane.batch = None
            lane.last_bytes = batch.buffer.size_bytes
        batch.close()

    def close_all(self) -> None:
        """Closes every batch."""
        for batch in [lane.batch for lane in self._lanes.values() if lane.batch is not None]:
            self.close(batch)


def _next_bytes(buffer: BatchBuffer, timestamp_ms: int, upper_bytes: int) -> int:
    """Exactly what a record of at most ``upper_bytes`` takes in ``buffer``, which has others."""
    delta_bytes = len(encode_varint(timestamp_ms - buffer.base_timestamp_ms))
    index_bytes = len(encode_varint(buffer.record_count))
    body_bytes = upper_bytes - _FRAMING_BYTES + 1 + delta_bytes + index_bytes
    return len(encode_varint(body_bytes)) + body_bytes
