"""Completes batches after a broker's answer, a failed request, or an expired delivery timeout.

``Completion`` is called with the guard held. It collects decided batches in ``finished`` and runs their
waiters later, without the guard. Log lines wait until then, too: a log handler has a lock of its own and may
call ``send``.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from splashdam.accumulator.batch import BatchState, ProducerBatch
from splashdam.model.broker_errors import (
    BrokerResponseError,
    ErrorCode,
    InvalidRecordError,
    error_class,
    error_for,
)
from splashdam.model.errors import KafkaError, KafkaTimeoutError, PurgedError, message_of
from splashdam.model.log_text import fields, naming
from splashdam.model.values import TopicPartition
from splashdam.sender.context import SenderContext
from splashdam.sender.delivery_timeout import DeliveryTimeout
from splashdam.sender.idempotence import Idempotence
from splashdam.sender.verdicts import NOT_WRITTEN, Verdict, verdict_for
from splashdam.wire.messages.produce import PartitionProduceResponse

if TYPE_CHECKING:
    from splashdam.sender.transactions.manager import TransactionManager


logger = logging.getLogger("splashdam.sender")

_Handler = Callable[[ProducerBatch, PartitionProduceResponse, float], None]


class Completion:
    """Completes, retries, splits or fails batches, and updates accumulator, idempotence and metadata.

    Attributes:
        in_flight: batches that were handed to a connection and have no answer yet.
        finished: decided batches whose waiters have not run yet.
        fatal: the error that stopped this producer for good; None if there is none.
        last_failure: the last failure on the way to a broker; the cause of batches that expire.
        last_record_error: what the application was told of the last batch that failed; None if none has.
    """

    def __init__(
        self,
        context: SenderContext,
        idempotence: Idempotence | None,
        transactions: TransactionManager | None = None,
        on_batch: Callable[[ProducerBatch], None] | None = None,
    ) -> None:
        self._transactions = transactions
        self._on_batch = on_batch
        self.in_flight: dict[ProducerBatch, None] = {}
        self.finished: deque[ProducerBatch] = deque()
        self.fatal: KafkaError | None = None
        self.last_failure: BaseException | None = None
        self.last_record_error: BaseException | None = None
        self._timeout = DeliveryTimeout(context)
        self._accepted_late: list[tuple[TopicPartition, int]] = []
        settings = self._settings = context.settings
        self._accumulator = context.accumulator
        self._idempotence = idempotence
        self._metadata = context.metadata
        self._counters = context.counters
        # Java's ``guaranteeMessageOrder``: without sequence numbers one batch at a time keeps the order.
        self._keeps_order_by_muting = (
            idempotence is None and settings.max_in_flight_requests_per_connection == 1
        )
        self._handlers: dict[Verdict, _Handler] = {
            Verdict.DELIVERED: self._deliver,
            Verdict.DUPLICATE: self._deliver,
            Verdict.RETRY: self._retry,
            Verdict.RETRY_STALE: self._retry_elsewhere,
            Verdict.SPLIT: self._split,
            Verdict.REFUSE: self._refuse,
            Verdict.OUT_OF_ORDER: self._handle_out_of_order,
            Verdict.UNKNOWN_PRODUCER: self._handle_unknown_producer,
            Verdict.FATAL: self._fail_for_good,
        }

    def begin(self, batches: Iterable[ProducerBatch]) -> None:
        """Register drained batches as in flight."""
        for batch in batches:
            self.in_flight[batch] = None
            if self._keeps_order_by_muting:
                self._accumulator.mute(batch.topic_partition)

    def settle(self, batch: ProducerBatch, answer: PartitionProduceResponse, now_ms: float) -> None:
        """Handle the response for one batch in flight; a failed request counts as a response, too."""
        self._remove_in_flight(batch)
        verdict = verdict_for(answer.error_code, idempotent=self._idempotence is not None)
        self._handlers[verdict](batch, answer, now_ms)

    def acknowledge(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        """Complete a batch in flight that the broker has written: the usual case of ``settle``."""
        self._remove_in_flight(batch)
        self._delivered(batch, base_offset, log_append_time_ms)

    def refuse_unsent(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Fail a batch for which no request can be built. Nothing was sent, and a retry would not help."""
        self._remove_in_flight(batch)
        self._fail(batch, error)
        self._give_up_sequence(batch)

    def put_back(self, batch: ProducerBatch, now_ms: float) -> None:
        """Queue a batch that was drained but not sent; it goes with the next request."""
        self._remove_in_flight(batch)
        self._accumulator.put_back(batch, now_ms)

    def at_rest(self, now_ms: float) -> bool:
        """Whether a turn has nothing to do here: no batch can have expired, and there is no fatal error."""
        return self.fatal is None and now_ms < self._timeout.none_before_ms

    def expire(self, now_ms: float) -> None:
        """Fail batches past their delivery timeout, queued or in flight."""
        timeout = self._timeout
        if now_ms < timeout.none_before_ms:
            return
        for batch in self._accumulator.expire(now_ms):
            self._counters.expired += 1
            self._drop(batch, timeout.error(batch, self.last_failure))
        # A batch that expires in flight fails now, but its response is awaited: it usually tells whether the
        # sequence numbers are used (docs/decisions/idempotence.md).
        for batch in list(self.in_flight):
            if batch.state is BatchState.IN_FLIGHT and timeout.has_passed(batch, now_ms):
                self._counters.expired += 1
                self._abandon(batch, timeout.error(batch, self.last_failure))
        timeout.note_incomplete(self._accumulator.incomplete, now_ms)

    def purge(self, *, queued: bool, in_flight: bool) -> int:
        """Fail queued or in-flight batches for the application; return the number of records.

        Sequence numbers stay valid, since for the broker this equals an expiry. Requests on the wire stay
        there: their answers only release the memory.
        """
        count = 0
        for batch in self._accumulator.take_queued() if queued else ():
            count += batch.record_count
            self._drop(batch, _purged(batch))
        for batch in list(self.in_flight) if in_flight else ():
            # An abandoned batch has failed for the application already, and was counted then.
            if batch.state is BatchState.IN_FLIGHT:
                count += batch.record_count
                self._abandon(batch, _purged(batch))
        return count

    def next_expiry_ms(self, now_ms: float) -> float:
        """Return milliseconds until a batch in flight can expire; infinity if none is in flight."""
        return max(0.0, self._timeout.none_before_ms - now_ms) if self.in_flight else math.inf

    def abort(self, error: BaseException) -> None:
        """Fail all batches for the application; those in flight keep their memory until their answer."""
        for batch in self._accumulator.abort_batches(error):
            self._failed(batch)

    def abort_unsent(
        self, error: BaseException, unsendable: Callable[[ProducerBatch], bool] | None = None
    ) -> None:
        """Fail batches that wait for their first attempt, and those that are ``unsendable``."""
        for batch in self._accumulator.abort_unsent(error, unsendable):
            self._failed(batch)
            self._give_up_sequence(batch)

    def drop_in_flight(self, error: BaseException) -> None:
        """Release the memory of batches in flight. Only legal once no request can read their bytes."""
        for batch in self.in_flight:
            self._fail(batch, error)
        self.in_flight.clear()

    def run_finished(self) -> None:
        """Run the waiters of decided batches and write deferred log lines. The guard is not held."""
        # Logged because the application was told that these records failed: they are in the log all the same.
        accepted_late, self._accepted_late = self._accepted_late, []
        for topic_partition, record_count in accepted_late:
            logger.info(
                "%s accepted a batch of %d records after the producer had failed it",
                topic_partition,
                record_count,
                extra=fields(
                    client_id=self._settings.client_id,
                    topic=topic_partition.topic,
                    partition=topic_partition.partition,
                    records=record_count,
                ),
            )
        while self.finished:
            batch = self.finished.popleft()
            batch.outcome.run_waiters()  # if a signal handler raises here, the other batches stay queued
            # After the callbacks of its records (docs/decisions/outcomes.md).
            if self._on_batch is not None:
                self._on_batch(batch)

    def _deliver(self, batch: ProducerBatch, answer: PartitionProduceResponse, _now_ms: float) -> None:
        # DUPLICATE_SEQUENCE_NUMBER does not say at which offset the batch was written.
        base_offset = -1 if answer.error_code else answer.base_offset
        self._delivered(batch, base_offset, answer.log_append_time_ms)

    def _delivered(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        if batch.state is BatchState.IN_FLIGHT:
            self._counters.records_sent += batch.record_count
        else:
            self._accepted_late.append((batch.topic_partition, batch.record_count))
        self._accumulator.complete(batch, base_offset, log_append_time_ms)
        self.finished.append(batch)
        if self._idempotence is not None:
            last_offset = -1 if base_offset < 0 else base_offset + batch.record_count - 1
            self._idempotence.delivered(batch, last_offset)

    def _retry_elsewhere(self, batch: ProducerBatch, answer: PartitionProduceResponse, now_ms: float) -> None:
        self._metadata.request_update()
        self._retry(batch, answer, now_ms)

    def _retry(self, batch: ProducerBatch, answer: PartitionProduceResponse, now_ms: float) -> None:
        if self._may_retry(batch, now_ms):
            self._queue_again(batch, answer, now_ms)
            return
        is_late = self._timeout.has_passed(batch, now_ms)
        self._fail(
            batch, self._timeout.error(batch, self.last_failure) if is_late else _answered(batch, answer)
        )
        self._forget_sequence(batch)

    def _queue_again(
        self,
        batch: ProducerBatch,
        answer: PartitionProduceResponse,
        now_ms: float,
        *,
        at_once: bool = False,
    ) -> None:
        batch.last_error = self.last_failure = _answered(batch, answer)
        # Never taken back: after an attempt without an answer no later refusal proves that the log lacks it.
        batch.maybe_written |= answer.error_code not in NOT_WRITTEN
        self._counters.retried(batch)
        self._accumulator.reenqueue(batch, now_ms, at_once=at_once)

    def _split(self, batch: ProducerBatch, answer: PartitionProduceResponse, now_ms: float) -> None:
        if not self._may_split(batch):
            self._refuse(batch, answer, now_ms)
            return
        batch.last_error = _answered(batch, answer)
        if self._timeout.has_passed(batch, now_ms):
            # Each record may be small enough, but there is no time left to find out: so it is a timeout, and
            # not MESSAGE_TOO_LARGE.
            self._fail(batch, self._timeout.error(batch, self.last_failure))
            self._give_up_sequence(batch)
            return
        self._counters.splits += 1
        parts = self._accumulator.split_and_reenqueue(batch, now_ms)
        if self._idempotence is not None:
            self._idempotence.split(batch, parts)

    def _refuse(self, batch: ProducerBatch, answer: PartitionProduceResponse, _now_ms: float) -> None:
        error = _answered(batch, answer)
        record_errors = _record_errors(batch, answer)
        if record_errors:
            error = InvalidRecordError(
                f"{batch.topic_partition}: the batch held an invalid record; this one is safe to send again"
            )
        # First: this error becomes the reason of the gap that later batches name.
        self._fail(batch, error, record_errors)
        self._give_up_sequence(batch)

    def _remove_in_flight(self, batch: ProducerBatch) -> None:
        del self.in_flight[batch]
        if self._keeps_order_by_muting:
            self._accumulator.unmute(batch.topic_partition)

    def _give_up_sequence(self, batch: ProducerBatch) -> None:
        if batch.maybe_written:
            self._forget_sequence(batch)  # an earlier attempt may be in the log, with later batches behind it
        elif self._idempotence is not None and batch.sequenced:
            self._idempotence.refused(batch)

    def _handle_out_of_order(
        self, batch: ProducerBatch, answer: PartitionProduceResponse, now_ms: float
    ) -> None:
        assert self._idempotence is not None  # the verdict is for idempotent producers
        # The broker may have the whole batch, and then does not recognize its
        # parts. New numbers would write them twice.
        if batch.part_in_doubt:
            self._fail(batch, _error_in_doubt(batch, answer))
            self._give_up_sequence(batch)
            return
        # The lowest unanswered batch has no earlier one to wait for: the broker misses a batch for good.
        # Without transactions a new epoch closes the gap; in a transaction only the coordinator may give one.
        is_gap = self._transactions is not None and self._idempotence.is_lowest(batch)
        if is_gap or not self._may_retry(batch, now_ms):
            reason = self._idempotence.reason_of_gap(batch)
            if reason is None:
                self._refuse(batch, answer, now_ms)
            else:
                # Kafka's error would say that the broker lost data, but the missing batch failed here.
                self._fail(batch, _error_behind(batch, reason))
                self._give_up_sequence(batch)
            return
        needs_identity = self._idempotence.out_of_sequence(batch)
        self._queue_again(batch, answer, now_ms, at_once=not needs_identity)

    def _handle_unknown_producer(
        self, batch: ProducerBatch, answer: PartitionProduceResponse, now_ms: float
    ) -> None:
        if answer.log_start_offset < 0 or batch.base_sequence == 0:
            # The broker does not tell its log start offset, or there is no lower sequence number.
            self._retry(batch, answer, now_ms)
        elif self._was_deleted(batch, answer) and self._may_retry(batch, now_ms):
            assert self._transactions is not None
            self._transactions.sequences.forgotten(batch)
            self._queue_again(batch, answer, now_ms)
        else:
            self._handle_out_of_order(batch, answer, now_ms)

    def _was_deleted(self, batch: ProducerBatch, answer: PartitionProduceResponse) -> bool:
        """Whether retention has deleted all that this transactional producer wrote to the partition."""
        idempotence = self._idempotence
        if self._transactions is None or idempotence is None or not idempotence.is_lowest(batch):
            return False
        if batch.part_in_doubt:
            return False
        return answer.log_start_offset > idempotence.acked_offset(batch)

    def _fail_for_good(self, batch: ProducerBatch, answer: PartitionProduceResponse, _now_ms: float) -> None:
        self.fatal = _answered(batch, answer)
        if self._transactions is not None:
            # Before the batch fails, and not in the next turn: a caller that learns of it may commit at once.
            self._transactions.die(self.fatal)
        self._fail(batch, self.fatal)
        self._forget_sequence(batch)

    def _fail(
        self,
        batch: ProducerBatch,
        error: BaseException,
        record_errors: dict[int, BaseException] | None = None,
    ) -> None:
        # The application was told of the failure when it was abandoned; each batch is reported once.
        was_abandoned = batch.state is BatchState.ABANDONED
        self._accumulator.fail(batch, error, record_errors)
        if not was_abandoned:
            self._failed(batch)

    def _drop(self, batch: ProducerBatch, error: BaseException) -> None:
        """Fail a batch taken from its queue, whether it was sent before or not."""
        self._fail(batch, error)
        self._forget_sequence(batch)

    def _abandon(self, batch: ProducerBatch, error: BaseException) -> None:
        """Fail a batch whose request is on the wire."""
        self._accumulator.abandon(batch, error)
        self._failed(batch)
        if self._idempotence is not None and batch.sequenced:
            self._idempotence.abandoned(batch)

    def _failed(self, batch: ProducerBatch) -> None:
        """Report the failure of a batch to the application, once per batch."""
        self._counters.failed(batch)
        self.last_record_error = batch.outcome.error
        if self._transactions is not None and batch.outcome.error is not None:
            self._transactions.batch_failed(batch.outcome.error)
        self.finished.append(batch)

    def _forget_sequence(self, batch: ProducerBatch) -> None:
        if self._idempotence is not None and batch.sequenced:
            self._idempotence.lost(batch)

    def _may_retry(self, batch: ProducerBatch, now_ms: float) -> bool:
        return (
            batch.state is BatchState.IN_FLIGHT
            and batch.attempts < self._settings.retries
            and not self._timeout.has_passed(batch, now_ms)
        )

    def _may_split(self, batch: ProducerBatch) -> bool:
        # The application has seen the failure of an abandoned batch: its records must not be sent again.
        return batch.record_count > 1 and batch.state is BatchState.IN_FLIGHT


def _said_by(error: BaseException) -> str:
    if isinstance(error, BrokerResponseError):
        return error.message  # the class puts "[code name] " in front again
    return message_of(error) if isinstance(error, KafkaError) else str(error)


def _error_behind(batch: ProducerBatch, reason: BaseException) -> KafkaError:
    """Return the error of a batch that cannot be written because an earlier one failed: of the same class."""
    text = naming(batch.topic_partition, f"this batch was sent behind one that failed: {_said_by(reason)}")
    if isinstance(reason, BrokerResponseError):
        return error_for(reason.code, text)
    error = KafkaTimeoutError(text)
    error.__cause__ = reason
    return error


def _error_in_doubt(batch: ProducerBatch, answer: PartitionProduceResponse) -> KafkaError:
    """Return the error of a part that the broker refuses, perhaps because it has written the whole batch."""
    return _error(
        batch,
        answer.error_code,
        "the records may have been written already: the connection broke, then the broker called their batch"
        " too large, and does not take it in parts",
    )


def _purged(batch: ProducerBatch) -> PurgedError:
    sent = batch.attempts or batch.state is BatchState.IN_FLIGHT
    whether = "they may have been written" if sent else "they were not sent"
    return PurgedError(f"{batch.record_count} records for {batch.topic_partition} were purged; {whether}")


def _error(batch: ProducerBatch, error_code: int, text: str | None) -> KafkaError:
    text = text or (error_class(error_code).__doc__ or "").strip()
    return error_for(error_code, naming(batch.topic_partition, text))


def _answered(batch: ProducerBatch, answer: PartitionProduceResponse) -> KafkaError:
    return _error(batch, answer.error_code, answer.error_message)


def _record_errors(batch: ProducerBatch, answer: PartitionProduceResponse) -> dict[int, BaseException]:
    """Return the errors of the single records that the broker names (KIP-467), by index in the batch.

    A single record gets the batch's error code, several get INVALID_RECORD, each with the broker's text.
    """
    named = answer.record_errors
    code = answer.error_code if len(named) == 1 else ErrorCode.INVALID_RECORD
    return {
        each.batch_index: _error(batch, code, each.batch_index_error_message or answer.error_message)
        for each in named
    }
