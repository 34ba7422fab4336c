"""``on_batch``: the application hears of whole batches, at a cost per batch."""

from __future__ import annotations

from collections.abc import Callable

from splashdam.accumulator.batch import ProducerBatch
from splashdam.model.values import BatchMetadata
from splashdam.record.kernel.outcomes import outcome_table
from splashdam.record.kernel.outcomes.outcome import fresh


class BatchListener:
    """Calls the application's function with each batch that was delivered or has failed.

    Args:
        function: is called on the sender's thread, after the callbacks of the batch's records and under the
            same rules: what it raises is logged, and it may send, but not wait.
    """

    def __init__(self, function: Callable[[BatchMetadata], object]) -> None:
        self._function = function

    def __call__(self, batch: ProducerBatch) -> None:
        before = outcome_table.enter_callbacks()
        try:
            self._function(_metadata(batch))
        except BaseException as error:
            outcome_table.on_callback_error(error)
        finally:
            outcome_table.leave_callbacks(before)


def _metadata(batch: ProducerBatch) -> BatchMetadata:
    outcome = batch.outcome
    appended_ms, error = outcome.log_append_time_ms, outcome.error
    return BatchMetadata(
        batch.topic_partition,
        outcome.base_offset,
        batch.record_count,
        batch.base_timestamp_ms if appended_ms < 0 else appended_ms,
        batch.max_timestamp_ms if appended_ms < 0 else appended_ms,
        None if error is None else fresh(error),
    )
