"""What becomes of a batch after an answer, a failure, or too long a wait: the verdicts, carried out.

Called with the guard held. Outcomes whose waiters are to be run afterwards, without it, collect in
``finished``; what is to be logged waits as well, because a log handler has a lock of its own and may send.

What to do with a batch, by the error code the broker answered for it. The whole table is here. Source:
Kafka's ``Errors``, ``Sender.completeBatch`` and ``TransactionManager``. Without idempotence a retriable error
is retried and every other one fails the batch.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable
from enum import auto
from typing import TYPE_CHECKING, NamedTuple

from splashdam.accumulator.batch import BatchState, ProducerBatch
from splashdam.model.broker_errors import (
    BrokerResponseError,
    ErrorCode,
    InvalidRecordError,
    error_class,
    error_for,
)
from splashdam.model.errors import KafkaError, KafkaTimeoutError, PurgedError, message_of
from splashdam.model.lifecycle import Stage
from splashdam.model.log_text import fields, naming
from splashdam.model.values import TopicPartition
from splashdam.sender.context import SenderContext
from splashdam.sender.idempotence import Idempotence
from splashdam.wire.messages.produce import PartitionProduceResponse

if TYPE_CHECKING:
    from splashdam.sender.transactions.manager import TransactionManager


class Verdict(Stage):
    """What becomes of a batch."""

    DELIVERED = auto()
    DUPLICATE = auto()
    """The broker has it already; its offset is not known."""
    RETRY = auto()
    RETRY_STALE = auto()
    """Retry, and what we know of the cluster is out of date."""
    SPLIT = auto()
    """Too large: divide it, or refuse it where it holds a single record."""
    REFUSE = auto()
    """The broker certainly did not write it and never will: fail this batch, go on with the next."""
    OUT_OF_ORDER = auto()
    """Not the sequence number the broker expects."""
    UNKNOWN_PRODUCER = auto()
    """The broker does not remember this producer."""
    FATAL = auto()
    """Nothing this producer sends can succeed any more."""


class Row(NamedTuple):
    """One row of the table: for a producer with idempotence, and for one without."""

    idempotent: Verdict
    plain: Verdict


_STALE = Row(Verdict.RETRY_STALE, Verdict.RETRY_STALE)
_RETRY = Row(Verdict.RETRY, Verdict.RETRY)
_FATAL = Row(Verdict.FATAL, Verdict.REFUSE)
REFUSED = Row(Verdict.REFUSE, Verdict.REFUSE)
"""Every code that has no row of its own."""

VERDICTS: dict[int, Row] = {
    ErrorCode.NONE: Row(Verdict.DELIVERED, Verdict.DELIVERED),
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: Row(Verdict.DUPLICATE, Verdict.DUPLICATE),
    # The leader is another one, or away.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _STALE,
    ErrorCode.LEADER_NOT_AVAILABLE: _STALE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: _STALE,
    ErrorCode.REPLICA_NOT_AVAILABLE: _STALE,
    ErrorCode.NETWORK_EXCEPTION: _STALE,
    ErrorCode.KAFKA_STORAGE_ERROR: _STALE,
    ErrorCode.LISTENER_NOT_FOUND: _STALE,
    ErrorCode.FENCED_LEADER_EPOCH: _STALE,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: _STALE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: _STALE,
    ErrorCode.ELECTION_NOT_NEEDED: _STALE,
    ErrorCode.UNKNOWN_TOPIC_ID: _STALE,
    ErrorCode.INCONSISTENT_TOPIC_ID: _STALE,
    # It may work the next time.
    ErrorCode.CORRUPT_MESSAGE: _RETRY,
    ErrorCode.REQUEST_TIMED_OUT: _RETRY,
    ErrorCode.NOT_ENOUGH_REPLICAS: _RETRY,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _RETRY,
    ErrorCode.UNKNOWN_LEADER_EPOCH: _RETRY,
    ErrorCode.OFFSET_NOT_AVAILABLE: _RETRY,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: _RETRY,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _RETRY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _RETRY,
    ErrorCode.NOT_COORDINATOR: _RETRY,
    ErrorCode.NOT_CONTROLLER: _RETRY,
    ErrorCode.CONCURRENT_TRANSACTIONS: _RETRY,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: _RETRY,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: _RETRY,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: _RETRY,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: _RETRY,
    ErrorCode.SHARE_SESSION_NOT_FOUND: _RETRY,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: _RETRY,
    ErrorCode.MESSAGE_TOO_LARGE: Row(Verdict.SPLIT, Verdict.SPLIT),
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Row(Verdict.OUT_OF_ORDER, Verdict.REFUSE),
    ErrorCode.UNKNOWN_PRODUCER_ID: Row(Verdict.UNKNOWN_PRODUCER, Verdict.REFUSE),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _FATAL,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _FATAL,
    ErrorCode.PRODUCER_FENCED: _FATAL,
    ErrorCode.UNSUPPORTED_VERSION: _FATAL,
    # Refused as it is. These have rows because a reader looks for them here.
    ErrorCode.UNKNOWN_SERVER_ERROR: REFUSED,
    ErrorCode.INVALID_TOPIC_EXCEPTION: REFUSED,
    ErrorCode.RECORD_LIST_TOO_LARGE: REFUSED,
    ErrorCode.INVALID_REQUIRED_ACKS: REFUSED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: REFUSED,
    ErrorCode.INVALID_TIMESTAMP: REFUSED,
    ErrorCode.INVALID_REQUEST: REFUSED,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: REFUSED,
    ErrorCode.POLICY_VIOLATION: REFUSED,
    ErrorCode.INVALID_PRODUCER_EPOCH: REFUSED,
    ErrorCode.INVALID_TXN_STATE: REFUSED,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: REFUSED,
    ErrorCode.INVALID_RECORD: REFUSED,
    ErrorCode.TRANSACTION_ABORTABLE: REFUSED,
}

NOT_WRITTEN = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""Codes of retried batches that rule out that this attempt was written; after the others it may have been.

6 is not among them: a leader that loses its office while it waits for its followers answers it, too.
"""


def verdict_for(error_code: int, *, idempotent: bool) -> Verdict:
    """The verdict on a batch that was answered with ``error_code``."""
    row = VERDICTS.get(error_code, REFUSED)
    return row.idempotent if idempotent else row.plain


logger = logging.getLogger("splashdam.sender")

_Handler = Callable[[ProducerBatch, PartitionProduceResponse, float], None]


class Completion:
    """Settles batches: tells accumulator, idempotence and metadata what happened.

    Attributes:
        in_flight: batches handed to a link and not settled.
        finished: batches that are decided and whose waiters have not been run.
        fatal: the error after which nothing can be sent any more, None while all is well.
        last_failure: the last thing that went wrong on the way to a broker; told to batches that expire.
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
        self._nothing_late_before_ms = -math.inf  # whatever is opened after a look is late after this
        self._accepted_late: list[tuple[TopicPartition, int]] = []
        settings = self._settings = context.settings
        self._accumulator = context.accumulator
        self._idempotence = idempotence
        self._metadata = context.metadata
        self._counters = context.counters
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
            Verdict.OUT_OF_ORDER: self._find_order,
            Verdict.UNKNOWN_PRODUCER: self._introduce_again,
            Verdict.FATAL: self._stop,
        }

    def begin(self, batches: Iterable[ProducerBatch]) -> None:
        """The batches were drained and go to a broker."""
        for batch in batches:
            self.in_flight[batch] = None
            if self._keeps_order_by_muting:
                self._accumulator.mute(batch.topic_partition)

    def settle(self, batch: ProducerBatch, answer: PartitionProduceResponse, now_ms: float) -> None:
        """The broker's answer for one batch in flight, or what stands for it when there is none."""
        self._land(batch)
        verdict = verdict_for(answer.error_code, idempotent=self._idempotence is not None)
        self._handlers[verdict](batch, answer, now_ms)

    def refuse_unsent(self, batch: ProducerBatch, error: KafkaError) -> None:
        """A batch in flight for which no request can be made: nothing was sent, and no repeat would help."""
        self._land(batch)
        self._fail(batch, error)
        self._give_up_sequence(batch)

    def put_back(self, batch: ProducerBatch, now_ms: float) -> None:
        """A batch in flight was not sent after all, and goes with the next request."""
        self._land(batch)
        self._accumulator.put_back(batch, now_ms)

    def expire(self, now_ms: float) -> None:
        """Fails the batches whose delivery timeout has passed, in their queues and in flight."""
        if now_ms < self._nothing_late_before_ms:
            return
        for batch in self._accumulator.expire(now_ms):
            self._counters.expired += 1
            self._drop(batch, self._timeout(batch))
        for batch in list(self.in_flight):
            if batch.state is BatchState.IN_FLIGHT and self._is_late(batch, now_ms):
                self._counters.expired += 1
                self._abandon(batch, self._timeout(batch))
        oldest_ms = min((batch.created_ms for batch in self._accumulator.incomplete), default=now_ms)
        self._nothing_late_before_ms = min(oldest_ms, now_ms) + self._settings.delivery_timeout_ms

    def purge(self, *, queued: bool, in_flight: bool) -> int:
        """Fails what the application does not want any more; counts the records.

        Sequence numbers stay legal, since to a broker this looks as if they had expired. What is on the wire
        stays there: its answer is ignored, and its memory comes back then.
        """
        count = 0
        for batch in self._accumulator.take_queued() if queued else ():
            count += batch.record_count
            self._drop(batch, _purged(batch))
        for batch in list(self.in_flight) if in_flight else ():
            if batch.state is BatchState.IN_FLIGHT:
                count += batch.record_count
                self._abandon(batch, _purged(batch))
        return count

    def next_expiry_ms(self, now_ms: float) -> float:
        """How long until a batch in flight can be late; infinity if none is in flight."""
        return max(0.0, self._nothing_late_before_ms - now_ms) if self.in_flight else math.inf

    def abort(self, error: BaseException) -> None:
        """Fails everything for the application; batches in flight keep their memory until they are
        settled."""
        for batch in self._accumulator.abort_batches(error):
            self._failed(batch)

    def abort_unsent(
        self, error: BaseException, hopeless: Callable[[ProducerBatch], bool] | None = None
    ) -> None:
        """Fails what waits for its first attempt, since it cannot have one; and what else is ``hopeless``."""
        for batch in self._accumulator.abort_unsent(error, hopeless):
            self._failed(batch)
            self._give_up_sequence(batch)

    def drop_in_flight(self, error: BaseException) -> None:
        """No answer will come any more, and nothing reads the batches' bytes: gives their memory back."""
        for batch in self.in_flight:
            self._fail(batch, error)
        self.in_flight.clear()

    def run_finished(self) -> None:
        """Runs the waiters of what was decided, and logs what was noted. The guard is not held."""
        accepted_late, self._accepted_late = self._accepted_late, []
        for topic_partition, record_count in accepted_late:
            logger.info(
                "%s accepted a batch of %d records after it had failed here",
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
            batch.outcome.run_waiters()  # an interrupted one leaves the others in place
            if self._on_batch is not None:
                self._on_batch(batch)

    def _deliver(self, batch: ProducerBatch, answer: PartitionProduceResponse, _now_ms: float) -> None:
        base_offset = -1 if answer.error_code else answer.base_offset
        if batch.state is BatchState.IN_FLIGHT:
            self._counters.records_sent += batch.record_count
        else:
            self._accepted_late.append((batch.topic_partition, batch.record_count))
        self._accumulator.complete(batch, base_offset, answer.log_append_time_ms)
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
        late = self._is_late(batch, now_ms)
        self._fail(batch, self._timeout(batch) if late else _answered(batch, answer))
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
        batch.maybe_written |= answer.error_code not in NOT_WRITTEN
        self._counters.retried(batch)
        self._accumulator.reenqueue(batch, now_ms, at_once=at_once)

    def _split(self, batch: ProducerBatch, answer: PartitionProduceResponse, now_ms: float) -> None:
        if not self._may_split(batch):
            self._refuse(batch, answer, now_ms)
            return
        batch.last_error = _answered(batch, answer)
        if self._is_late(batch, now_ms):  # no record need be too large, but there is no time to find out
            self._fail(batch, self._timeout(batch))
            self._give_up_sequence(batch)
            return
        self._counters.splits += 1
        parts = self._accumulator.split_and_reenqueue(batch, now_ms)
        if self._idempotence is not None:
            self._idempotence.divided(batch, parts)

    def _refuse(self, batch: ProducerBatch, answer: PartitionProduceResponse, _now_ms: float) -> None:
        error = _answered(batch, answer)
        record_errors = _record_errors(batch, answer)
        if record_errors:
            error = InvalidRecordError(
                f"{batch.topic_partition}: the batch held an invalid record; this one is safe to send again"
            )
        self._fail(batch, error, record_errors)
        self._give_up_sequence(batch)

    def _land(self, batch: ProducerBatch) -> None:
        del self.in_flight[batch]
        if self._keeps_order_by_muting:
            self._accumulator.unmute(batch.topic_partition)

    def _give_up_sequence(self, batch: ProducerBatch) -> None:
        if batch.maybe_written:
            self._forget_sequence(batch)  # an earlier attempt may be in the log, and so may those behind it
        elif self._idempotence is not None and batch.sequenced:
            self._idempotence.refused(batch)

    def _find_order(self, batch: ProducerBatch, answer: PartitionProduceResponse, now_ms: float) -> None:
        assert self._idempotence is not None  # the verdict is for idempotent producers
        if batch.part_in_doubt:
            self._fail(batch, _in_doubt(batch, answer))
            self._give_up_sequence(batch)
            return
        breaks = self._transactions is not None and self._idempotence.is_lowest(batch)
        if breaks or not self._may_retry(batch, now_ms):
            reason = self._idempotence.reason_of_gap(batch)
            if reason is None:
                self._refuse(batch, answer, now_ms)
            else:  # nothing is lost in the cluster: what is missing there failed here
                self._fail(batch, _behind(batch, reason))
                self._give_up_sequence(batch)
            return
        needs_identity = self._idempotence.out_of_sequence(batch)
        self._queue_again(batch, answer, now_ms, at_once=not needs_identity)

    def _introduce_again(self, batch: ProducerBatch, answer: PartitionProduceResponse, now_ms: float) -> None:
        if answer.log_start_offset < 0 or batch.base_sequence == 0:
            # An old broker that cannot say whether it ever knew us; or there is no lower number to go to.
            self._retry(batch, answer, now_ms)
        elif self._was_deleted(batch, answer) and self._may_retry(batch, now_ms):
            assert self._transactions is not None
            self._transactions.sequences.forgotten(batch)
            self._queue_again(batch, answer, now_ms)
        else:
            self._find_order(batch, answer, now_ms)

    def _was_deleted(self, batch: ProducerBatch, answer: PartitionProduceResponse) -> bool:
        """Whether retention took all that a transaction's producer has written there."""
        idempotence = self._idempotence
        if self._transactions is None or idempotence is None or not idempotence.is_lowest(batch):
            return False
        if batch.part_in_doubt:
            return False
        return answer.log_start_offset > idempotence.acked_offset(batch)

    def _stop(self, batch: ProducerBatch, answer: PartitionProduceResponse, _now_ms: float) -> None:
        self.fatal = _answered(batch, answer)
        self._fail(batch, self.fatal)
        self._forget_sequence(batch)

    def _fail(
        self,
        batch: ProducerBatch,
        error: BaseException,
        record_errors: dict[int, BaseException] | None = None,
    ) -> None:
        told_before = batch.state is BatchState.ABANDONED
        self._accumulator.fail(batch, error, record_errors)
        if not told_before:
            self._failed(batch)

    def _drop(self, batch: ProducerBatch, error: BaseException) -> None:
        """Gives up a batch that was taken from its queue, whether it was sent before or not."""
        self._fail(batch, error)
        self._forget_sequence(batch)

    def _abandon(self, batch: ProducerBatch, error: BaseException) -> None:
        """Gives up a batch whose request is on the wire."""
        self._accumulator.abandon(batch, error)
        self._failed(batch)
        if self._idempotence is not None and batch.sequenced:
            self._idempotence.abandoned(batch)

    def _failed(self, batch: ProducerBatch) -> None:
        """The application is told that the batch failed: once for each batch, whatever it failed of."""
        self._counters.failed(batch)
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
            and not self._is_late(batch, now_ms)
        )

    def _may_split(self, batch: ProducerBatch) -> bool:
        return batch.record_count > 1 and batch.state is BatchState.IN_FLIGHT

    def _is_late(self, batch: ProducerBatch, now_ms: float) -> bool:
        return now_ms >= batch.created_ms + self._settings.delivery_timeout_ms

    def _timeout(self, batch: ProducerBatch) -> KafkaTimeoutError:
        cause = batch.last_error or self.last_failure
        error = KafkaTimeoutError(
            naming(
                batch.topic_partition,
                f"{batch.record_count} records were not acknowledged within"
                f" delivery_timeout_ms={self._settings.delivery_timeout_ms:g}, {batch.attempts} attempts"
                f" failed; {self._present_trouble(batch)}"
                f"last failure: {cause or self._metadata.last_failure or 'none'}",
            )
        )
        error.__cause__ = cause
        return error

    def _present_trouble(self, batch: ProducerBatch) -> str:
        obstacle = self._metadata.obstacle()
        return (f"{obstacle}; " if obstacle else "") + self._trouble_of(batch)

    def _trouble_of(self, batch: ProducerBatch) -> str:
        if batch.state is BatchState.IN_FLIGHT:
            return "the broker has not answered the last one; "
        leaderless = self._metadata.cluster.leader_for(batch.topic_partition) < 0
        return "the partition has no known leader; " if leaderless else ""


def _said_by(error: BaseException) -> str:
    if isinstance(error, BrokerResponseError):
        return error.message  # the class puts "[code name] " in front again
    return message_of(error) if isinstance(error, KafkaError) else str(error)


def _behind(batch: ProducerBatch, reason: BaseException) -> KafkaError:
    """The error of a batch that the broker cannot take, since one before it failed: the same."""
    text = naming(batch.topic_partition, f"this batch was sent behind one that failed: {_said_by(reason)}")
    if isinstance(reason, BrokerResponseError):
        return error_for(reason.code, text)
    error = KafkaTimeoutError(text)
    error.__cause__ = reason
    return error


def _in_doubt(batch: ProducerBatch, answer: PartitionProduceResponse) -> KafkaError:
    """The error of a part that the broker does not take, perhaps since it has the whole batch."""
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
    """Errors of the records that the broker names (KIP-467).

    A single one gets the batch's error, several get InvalidRecord; the text is the broker's for that record.
    """
    named = answer.record_errors
    code = answer.error_code if len(named) == 1 else ErrorCode.INVALID_RECORD
    return {
        each.batch_index: _error(batch, code, each.batch_index_error_message or answer.error_message)
        for each in named
    }
