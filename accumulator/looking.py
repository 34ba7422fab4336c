"""What can be asked of the accumulator without changing it."""

from __future__ import annotations

from splashdam.accumulator.endings import BatchEndings
from splashdam.accumulator.memory import MemoryBudget
from splashdam.accumulator.queues import PartitionQueues
from splashdam.accumulator.results import AccumulatorStatistics
from splashdam.model.values import TopicPartition


class AccumulatorLooks(BatchEndings):
    """The looks at memory and queues: part of ``RecordAccumulator``.

    Args:
        memory: the budget.
        queues: the batches that wait.
    """

    def __init__(self, memory: MemoryBudget, queues: PartitionQueues) -> None:
        super().__init__(memory)
        self._queues = queues
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    @property
    def free_bytes(self) -> int:
        """Memory that nothing has reserved."""
        return self._memory.free_bytes

    @property
    def buffer_memory(self) -> int:
        """Memory in all."""
        return self._memory.total_bytes

    @property
    def waiting(self) -> int:
        """Number of tickets that wait for memory."""
        return self._memory.waiting

    @property
    def has_queued(self) -> bool:
        """Whether any batch waits in a queue. Needs no guard, unlike ``queued_topics``."""
        return self._queues.any_waiting

    def queued_topics(self) -> set[str]:
        """Topics with batches in a queue."""
        return self._queues.topics()

    def queued_batches(self, topic_partition: TopicPartition) -> int:
        """Number of batches in a partition's queue."""
        return self._queues.queued_batches(topic_partition)

    def statistics(self) -> AccumulatorStatistics:
        """Counts at this moment."""
        return AccumulatorStatistics(
            free_bytes=self.free_bytes,
            buffer_memory=self.buffer_memory,
            waiting=self.waiting,
            queued_batches=sum(1 for _ in self._queues),
            incomplete_batches=len(self._incomplete),
        )
