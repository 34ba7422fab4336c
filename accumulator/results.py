"""What the accumulator answers to ``append`` and ``ready``, and what it asks of idempotence."""

from __future__ import annotations

from typing import ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

from splashdam.accumulator.batch import ProducerBatch
from splashdam.accumulator.memory import MemoryTicket
from splashdam.record.kernel import FutureCell

FutureT = TypeVar("FutureT", bound=FutureCell)


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


class BatchFull:
    """Nothing was appended: the record needs a new batch, and the caller wanted to hear of that first."""

    wake: ClassVar[bool] = True
    ticket: ClassVar[None] = None


BATCH_FULL: Final = BatchFull()


class Exhausted:
    """Nothing was appended: the record needs memory that is not free.

    Attributes:
        ticket: the place in the line; append again with it once it is ready, or cancel it.
        wake: True: as long as somebody waits, every batch may be sent at once.
    """

    __slots__ = ("ticket",)

    wake: ClassVar[bool] = True
    ticket: MemoryTicket


class ReadyCheck(NamedTuple):
    """What can be sent now, and when to ask again.

    Attributes:
        nodes: node ids that lead a partition with a batch to send.
        next_check_ms: milliseconds until something else becomes ready or expires, unless an event comes
            first; infinity if nothing waits for time to pass.
        unknown_leader_topics: topics with batches for partitions that have no known leader.
    """

    nodes: frozenset[int]
    next_check_ms: float
    unknown_leader_topics: frozenset[str]


class DrainGate(Protocol):
    """Who numbers batches and holds back those whose turn has not come: idempotence."""

    def admits(self, batch: ProducerBatch) -> bool:
        """Whether the head of a queue may be sent now. If not, the gate's owner knows what to wait for."""
        ...

    def drained(self, batch: ProducerBatch) -> None:
        """The batch is about to leave its queue: gives it producer id, epoch and sequence if it has none.

        If this raises, no batch has left its queue.
        """
        ...


class OpenGate:
    """The gate of a producer without idempotence: no numbers, nothing held back."""

    def admits(self, batch: ProducerBatch) -> bool:
        """Always True."""
        return True

    def drained(self, batch: ProducerBatch) -> None:
        """Leaves the batch without numbers."""


class AccumulatorStatistics(NamedTuple):
    """A look at the accumulator.

    Attributes:
        free_bytes: memory that is not reserved.
        buffer_memory: memory in all.
        waiting: callers who wait for memory.
        queued_batches: batches that wait in their queues.
        incomplete_batches: batches whose outcome is open.
    """

    free_bytes: int
    buffer_memory: int
    waiting: int
    queued_batches: int
    incomplete_batches: int
