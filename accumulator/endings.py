"""How batches end: delivered, failed, given up; and what they give back then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from splashdam.accumulator.batch import BatchEvent, ProducerBatch
from splashdam.accumulator.memory import MemoryBudget
from splashdam.record.kernel import BatchOutcome


class BatchEndings:
    """The batches whose outcome is open, and the ways in which it is decided: part of ``RecordAccumulator``.

    Args:
        memory: the budget that a batch gives its reservation back to.
    """

    def __init__(self, memory: MemoryBudget) -> None:
        self._memory = memory
        self._incomplete: dict[ProducerBatch, None] = {}

    @property
    def incomplete(self) -> Iterable[ProducerBatch]:
        """The batches whose outcome is open."""
        return self._incomplete.keys()

    @property
    def has_incomplete(self) -> bool:
        """Whether any batch's outcome is open."""
        return bool(self._incomplete)

    def complete(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> BatchOutcome:
        """The broker has the batch. The caller runs the outcome's waiters, outside the guard."""
        batch.advance(BatchEvent.SUCCEED)
        batch.outcome.succeed(base_offset, log_append_time_ms)
        self._finish(batch)
        return batch.outcome

    def fail(
        self,
        batch: ProducerBatch,
        error: BaseException,
        record_errors: Mapping[int, BaseException] | None = None,
    ) -> BatchOutcome:
        """The batch is given up, in flight or taken from its queue. The caller runs the outcome's waiters.

        Raises:
            IllegalStateError: the batch still takes records, or had its answer. Nothing has changed.
        """
        batch.advance(BatchEvent.FAIL)
        batch.outcome.fail(error, record_errors)
        self._finish(batch)
        return batch.outcome

    def abandon(self, batch: ProducerBatch, error: BaseException) -> BatchOutcome:
        """Fails a batch in flight for the application; its memory stays reserved until ``complete`` or
        ``fail``.

        A request may still be reading its bytes, and the broker may still accept it.
        """
        batch.advance(BatchEvent.ABANDON)
        batch.outcome.fail(error)
        self._incomplete.pop(batch, None)
        return batch.outcome

    def _finish(self, batch: ProducerBatch) -> None:
        self._incomplete.pop(batch, None)
        released_bytes = batch.let_go()
        if released_bytes:
            self._memory.release(released_bytes)
