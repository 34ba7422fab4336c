"""The batches that take records: one per partition, and the memory they reserve as they grow."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from splashdam.accumulator.batch import ProducerBatch
from splashdam.accumulator.memory import MemoryBudget, MemoryTicket, TicketState
from splashdam.model.broker_errors import MessageTooLargeError
from splashdam.model.errors import IllegalArgumentError
from splashdam.model.values import Buffer, HeaderPairs, TopicPartition
from splashdam.record.batch import HEADER_BYTES
from splashdam.record.kernel import BatchBuffer, FutureCell

FutureT = TypeVar("FutureT", bound=FutureCell)

FIRST_CAPACITY_BYTES = 1024
"""What a new batch reserves at least (or ``batch_bytes``, if that is less); it doubles as records come."""


class PendingRecord(NamedTuple):
    """A record that is to be appended, as ``BatchBuffer.try_append`` takes it."""

    timestamp_ms: int
    key: Buffer | None
    value: Buffer | None
    headers: HeaderPairs | None

    def future(self, future_type: type[FutureT], batch: ProducerBatch) -> FutureT:
        """The delivery future of this record, which was just appended to ``batch``."""
        return future_type(
            batch.outcome,
            batch.buffer.record_count - 1,
            self.timestamp_ms,
            -1 if self.key is None else len(self.key),
            -1 if self.value is None else len(self.value),
            headers_size(self.headers) if self.headers else -1,
        )


class OpenBatches:
    """The last batch of each partition, while it takes records.

    Args:
        batch_bytes: size limit of a batch, header included, uncompressed.
        memory: the budget of which batches reserve what their buffers hold.
    """

    def __init__(self, batch_bytes: int, memory: MemoryBudget) -> None:
        self.by_partition: dict[TopicPartition, ProducerBatch] = {}
        self._batch_bytes = batch_bytes
        self._memory = memory

    def grow_and_append(
        self, topic_partition: TopicPartition, upper_bytes: int, record: PendingRecord
    ) -> ProducerBatch | None:
        """Appends after the open batch has grown. A batch that cannot take the record is closed."""
        batch = self.by_partition.get(topic_partition)
        if batch is None:
            return None
        buffer = batch.buffer
        for wanted_bytes in (2 * buffer.capacity_bytes, buffer.size_bytes + upper_bytes):
            grown_bytes = min(wanted_bytes, self._batch_bytes) - buffer.capacity_bytes
            if grown_bytes > 0 and self._memory.take(grown_bytes):
                batch.charged_bytes += grown_bytes  # first: it is given back even if the next line fails
                buffer.reserve(buffer.capacity_bytes + grown_bytes)
                if buffer.try_append(*record):
                    return batch
        self.close(batch)
        return None

    def first_capacity(self, topic_partition: TopicPartition, upper_bytes: int) -> int:
        """What a new batch reserves for a record of at most ``upper_bytes``.

        Raises:
            MessageTooLargeError: more than the whole budget.
        """
        needed_bytes = HEADER_BYTES + upper_bytes
        total_bytes = self._memory.total_bytes
        if needed_bytes > total_bytes:
            raise MessageTooLargeError(
                f"a record for {topic_partition} takes up to {needed_bytes} bytes, "
                f"buffer_memory is {total_bytes} in all"
            )
        return max(needed_bytes, min(self._batch_bytes, FIRST_CAPACITY_BYTES, total_bytes))

    def reserve(self, ticket: MemoryTicket | None, needed_bytes: int) -> bool:
        """Reserves memory for a new batch, at once or with a ticket that is ready.

        Raises:
            IllegalArgumentError: the ticket is for less.
            IllegalStateError: the ticket was cancelled or spent before.
        """
        if ticket is None:
            return self._memory.take(needed_bytes)
        if ticket.state is TicketState.WAITING:
            return False
        if ticket.needed_bytes < needed_bytes:
            raise IllegalArgumentError(
                f"the ticket is for {ticket.needed_bytes} bytes, this record needs {needed_bytes}"
            )
        surplus_bytes = self._memory.spend(ticket) - needed_bytes
        if surplus_bytes:
            self._memory.release(surplus_bytes)
        return True

    def open(
        self, topic_partition: TopicPartition, now_ms: float, capacity_bytes: int, record: PendingRecord
    ) -> ProducerBatch:
        """A new batch that holds ``record``, in memory that was reserved; given back if this fails."""
        try:
            buffer = BatchBuffer(capacity_bytes)
            buffer.try_append(*record)
            batch = ProducerBatch(topic_partition, buffer, now_ms, capacity_bytes)
        except BaseException:
            self._memory.release(capacity_bytes)
            raise
        self.by_partition[topic_partition] = batch
        return batch

    def close(self, batch: ProducerBatch) -> None:
        """The batch takes no more records."""
        batch.close()
        if self.by_partition.get(batch.topic_partition) is batch:
            del self.by_partition[batch.topic_partition]

    def close_all(self) -> None:
        """Closes every batch."""
        for batch in self.by_partition.values():
            batch.close()
        self.by_partition.clear()


def headers_size(headers: HeaderPairs) -> int:
    """Bytes of all keys (as UTF-8) and values."""
    return sum(len(key.encode()) + (0 if value is None else len(value)) for key, value in headers)
