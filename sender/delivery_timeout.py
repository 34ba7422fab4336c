"""``delivery_timeout_ms``: when a batch has waited too long for its acknowledgement, and what its error says.

The time begins with the batch's first record; linger, retries and the wait for an answer count (KIP-91).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from splashdam.accumulator.batch import BatchState, ProducerBatch
from splashdam.model.errors import KafkaTimeoutError, SettingText
from splashdam.model.log_text import naming
from splashdam.sender.context import SenderContext


class DeliveryTimeout:
    """Decides which batches in flight have expired; ``Completion`` fails them.

    Queued ones are taken out of their queues by ``PartitionQueues.expire``, by the same rule.

    Attributes:
        none_before_ms: no batch can expire before; saves a look at every batch on every turn.
    """

    def __init__(self, context: SenderContext) -> None:
        self._timeout_ms = context.settings.delivery_timeout_ms
        self._metadata = context.metadata
        self.none_before_ms = -math.inf

    def note_incomplete(self, batches: Iterable[ProducerBatch], now_ms: float) -> None:
        """Compute when the next of all incomplete batches can expire."""
        oldest_ms = min((batch.created_ms for batch in batches), default=now_ms)
        # Not later than for a batch that begins now: one that is opened
        # before the next look must not be missed.
        self.none_before_ms = min(oldest_ms, now_ms) + self._timeout_ms

    def has_passed(self, batch: ProducerBatch, now_ms: float) -> bool:
        """Return whether the batch has expired."""
        return now_ms >= batch.created_ms + self._timeout_ms

    def error(self, batch: ProducerBatch, last_failure: BaseException | None) -> KafkaTimeoutError:
        """Return the error of an expired batch. It names what stood in the way.

        Args:
            batch: the batch.
            last_failure: of any request, for a batch that was never answered.
        """
        cause = batch.last_error or last_failure
        text = SettingText(
            "{records} not acknowledged within {0}={timeout_ms:g}, {attempts} attempts failed;"
            " {obstacle}last failure: {failure}",
            "delivery_timeout_ms",
            records="1 record was" if batch.record_count == 1 else f"{batch.record_count} records were",
            timeout_ms=self._timeout_ms,
            attempts=batch.attempts,
            obstacle=self._obstacle_text(batch),
            failure=cause or self._metadata.last_failure or "none",
        )
        error = KafkaTimeoutError(naming(batch.topic_partition, text))
        error.__cause__ = cause
        return error

    def _obstacle_text(self, batch: ProducerBatch) -> str:
        obstacle = self._metadata.obstacle()
        return (f"{obstacle}; " if obstacle else "") + self._state_text(batch)

    def _state_text(self, batch: ProducerBatch) -> str:
        if batch.state is BatchState.IN_FLIGHT:
            return "the broker has not answered the last one; "
        leaderless = self._metadata.cluster.leader_for(batch.topic_partition) < 0
        return "the partition has no known leader; " if leaderless else ""
