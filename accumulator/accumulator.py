"""Records waiting to be sent: ``send`` appends them, the sender drains them.

Nothing here locks, waits or reads a clock. Application threads and the sender share one accumulator and hold
one guard around every call. ``append`` returns at once; its caller does the waiting. The semantics are those
of Kafka's ``RecordAccumulator`` and ``BufferPool``; ``docs/decisions/batch-ownership.md`` names the
differences.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import ClassVar, Final, NamedTuple, TypeVar

from splashdam.accumulator.backoff import exponential_ms
from splashdam.accumulator.batch import BatchEvent, BatchState, ProducerBatch
from splashdam.accumulator.compressions import BatchCompressions
from splashdam.accumulator.memory import MemoryBudget, MemoryTicket
from splashdam.accumulator.open_batches import (
    BATCH_OVERHEAD_BYTES,
    Appended,
    BatchLane,
    OpenBatches,
    PendingRecord,
)
from splashdam.accumulator.readiness import (
    DrainGate,
    NodeAvailability,
    Note,
    OpenGate,
    PartitionQueues,
    ReadyCheck,
)
from splashdam.accumulator.splitting import split_batch
from splashdam.model.cluster import ClusterMetadata
from splashdam.model.errors import IllegalStateError
from splashdam.model.values import HeaderPairs, TopicPartition
from splashdam.record.batch import HEADER_BYTES
from splashdam.record.compression import Compression
from splashdam.record.kernel import BatchOutcome, FutureCell, PartitionLane, record_size_upper_bound

FutureT = TypeVar("FutureT", bound=FutureCell)

_OPEN_GATE = OpenGate()


class BatchFull:
    """Result of ``append`` with ``abort_on_new_batch``: the record needs a new batch; it is not appended."""

    wake: ClassVar[bool] = True
    ticket: ClassVar[None] = None


BATCH_FULL: Final = BatchFull()


class Exhausted:
    """Result of ``append``: the record needs memory that is not free, and was not appended.

    Attributes:
        ticket: the place in the line for memory; append again with it once it is ready, or cancel it.
        wake: True: while a caller waits for memory, batches are sent without linger.
    """

    __slots__ = ("ticket",)

    wake: ClassVar[bool] = True
    ticket: MemoryTicket


class AccumulatorStatistics(NamedTuple):
    """Counts for metrics and error messages.

    Attributes:
        free_bytes: unreserved memory.
        buffer_memory: total memory.
        waiting: callers that wait for memory.
        queued_batches: batches in queues.
        incomplete_batches: batches without an outcome.
    """

    free_bytes: int
    buffer_memory: int
    waiting: int
    queued_batches: int
    incomplete_batches: int


class RecordAccumulator:
    """Batches per TopicPartition within one memory budget.

    A batch reserves the capacity of its buffer and a constant for its objects, not ``batch_bytes``. It starts
    at the size of its partition's last batch, doubles up to ``batch_bytes``, and releases everything once the
    broker has answered, never while a request may still read its bytes. Futures belong to the application and
    are not counted.

    Args:
        batch_bytes: size of a full batch, header included, after the compression expected for its topic. 0
            makes batches of one record; a larger record travels alone.
        linger_ms: how long a batch that is not full waits for more records.
        buffer_memory: bytes that all batches together may reserve.
        compression: codec of the batches.
        topic_compression: codecs of single topics.
        availability_timeout_ms: see ``NodeAvailability``.
        delivery_timeout_ms: limit from a batch's creation to its outcome, retries included.
        retry_backoff_ms: wait before the first retry; doubles with each, times a random factor of 0.8 to 1.2.
        retry_backoff_max_ms: upper limit of that wait.
        random: returns numbers from 0 to 1.

    Attributes:
        compressions: codec and expected compression ratio of each topic.
        availability: which nodes lag behind.
        memory: the budget of all batches.
        limit_bytes: the number of uncompressed bytes at which a topic's next batch is full.
        lane: the one ``PartitionLane`` of a partition; records that fit are appended to it directly.
        forget_lanes: drops lanes without an open batch, except those of the given topics.
    """

    def __init__(
        self,
        *,
        batch_bytes: int,
        linger_ms: float,
        buffer_memory: int,
        compression: Compression,
        delivery_timeout_ms: float,
        retry_backoff_ms: float,
        retry_backoff_max_ms: float,
        random: Callable[[], float],
        topic_compression: Mapping[str, Compression] | None = None,
        availability_timeout_ms: float = 0.0,
    ) -> None:
        self.batch_bytes = batch_bytes
        self.compressions = BatchCompressions(compression, topic_compression or {})
        self.delivery_timeout_ms = delivery_timeout_ms
        self.availability = NodeAvailability(availability_timeout_ms)
        self._queues = PartitionQueues(
            linger_ms=linger_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            backoff_ms=partial(exponential_ms, retry_backoff_ms, retry_backoff_max_ms, random),
        )
        self.memory = MemoryBudget(buffer_memory)
        self._incomplete: dict[ProducerBatch, None] = {}
        self._open = OpenBatches(batch_bytes, self.memory, self.compressions)
        self.limit_bytes: Callable[[str], int] = self._open.limit_bytes
        self.lane: Callable[[TopicPartition], PartitionLane] = self._open.lane
        self.forget_lanes: Callable[[Container[str]], None] = self._open.forget_lanes
        self._flushes = 0
        self._closed = False

    # --- state ---------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def free_bytes(self) -> int:
        """Unreserved memory; negative while a split batch needs more than was free."""
        return self.memory.free_bytes

    @property
    def buffer_memory(self) -> int:
        return self.memory.total_bytes

    @property
    def waiting(self) -> int:
        """Number of callers that wait for memory."""
        return self.memory.waiting

    @property
    def has_queued(self) -> bool:
        """Whether any batch is queued. Needs no guard, unlike ``queued_topics``."""
        return bool(self._queues.by_partition)

    def queued_topics(self) -> set[str]:
        """Topics with batches in a queue. Needs the guard: it iterates."""
        return self._queues.topics()

    def queued_batches(self, topic_partition: TopicPartition) -> int:
        """Number of batches in a partition's queue."""
        return self._queues.queued_batches(topic_partition)

    def statistics(self) -> AccumulatorStatistics:
        return AccumulatorStatistics(
            free_bytes=self.free_bytes,
            buffer_memory=self.buffer_memory,
            waiting=self.waiting,
            queued_batches=sum(1 for _ in self._queues),
            incomplete_batches=len(self._incomplete),
        )

    # --- append ---------------------------------------------------------------------------------------------

    def append(  # noqa: PLR0917 (the record as it is; positional arguments are cheaper)
        self,
        topic_partition: TopicPartition,
        now_ms: float,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs | None,
        *,
        future_type: type[FutureT] = FutureCell,  # type: ignore[assignment]  # TypeVars have no default in 3.11
        ticket: MemoryTicket | None = None,
        abort_on_new_batch: bool = False,
        expected_bytes: int = 0,
    ) -> Appended[FutureT] | BatchFull | Exhausted:
        """Append one record to the partition's open batch, or to a new one.

        Args:
            topic_partition: where the record goes.
            now_ms: the monotonic clock; a new batch's delivery timeout starts here.
            timestamp_ms: the record's own timestamp.
            key, value, headers: the record's parts; they must not change any more.
            future_type: class of the future; called with a ``FutureCell``'s arguments.
            ticket: from an earlier ``Exhausted`` for this same record.
            abort_on_new_batch: return ``BatchFull`` instead of opening a new batch.
            expected_bytes: size of the records known to follow; the batch gets room for them at once.

        Raises:
            IllegalStateError: the accumulator is closed, or the ticket was cancelled or used.
            IllegalArgumentError: the ticket is for a smaller record, or the record was changed meanwhile.
            MessageTooLargeError: the record alone exceeds ``buffer_memory``.
            TypeError, OverflowError, UnicodeEncodeError: as ``BatchBuffer.try_append``; nothing has changed.
        """
        lane = self._open.lane(topic_partition)
        # Another thread may have opened or grown the batch since this caller's fast path found no room.
        future = lane.try_append(timestamp_ms, key, value, headers, future_type)
        if future is not None:
            return self._appended(Appended(future, wake=False), ticket)
        # Not before the first attempt: `close` has closed all batches, so that attempt finds none.
        if self._closed:
            raise IllegalStateError("the producer is closed")
        record = PendingRecord(timestamp_ms, key, value, headers)
        upper_bytes = record_size_upper_bound(key, value, headers)
        appended = self._open.grow_and_append(lane, record, upper_bytes, future_type, expected_bytes)
        if appended is not None:
            return self._appended(appended, ticket)
        if abort_on_new_batch:
            return BATCH_FULL
        least_bytes = self._open.first_capacity(lane, upper_bytes)
        likely_bytes = self._open.likely_capacity(lane, least_bytes, expected_bytes)
        begun = self._begin(lane, now_ms, record, future_type, ticket, least_bytes, likely_bytes)
        if begun is None:
            exhausted = Exhausted()  # made first, so that no allocation can fail once the ticket is queued
            # For the likely capacity, or batches would become small just because memory is short.
            exhausted.ticket = ticket or self.memory.queue(self._open.charge(likely_bytes))
            return exhausted
        return Appended(begun, wake=True)

    def append_new(  # noqa: PLR0917 (as append)
        self,
        lane: PartitionLane,
        now_ms: float,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs | None,
        future_type: type[FutureT],
    ) -> FutureT | None:
        """Open a batch with a record: ``append`` without its less frequent cases.

        Most records that cannot take the fast path come here: with ``linger_ms=0`` every record opens a batch
        (docs/decisions/producer-threads.md).

        Args:
            lane: of the partition; may be one that was dropped by ``forget_lanes``.
            now_ms, timestamp_ms, key, value, headers, future_type: as for ``append``.

        Returns:
            None, with nothing changed, if a batch is open, memory is full, or the accumulator is closed;
            ``append`` handles those cases.

        Raises:
            MessageTooLargeError, TypeError, OverflowError, UnicodeEncodeError: as ``append``.
        """
        own = self._open.lane(lane.topic_partition)
        if own.batch is not None or self._closed:
            return None
        least_bytes = self._open.first_capacity(own, record_size_upper_bound(key, value, headers))
        likely_bytes = self._open.likely_capacity(own, least_bytes, 0)
        record = PendingRecord(timestamp_ms, key, value, headers)
        return self._begin(own, now_ms, record, future_type, None, least_bytes, likely_bytes)

    def append_grown(  # noqa: PLR0917 (as append)
        self,
        lane: PartitionLane,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs | None,
        future_type: type[FutureT],
    ) -> FutureT | None:
        """Append to the open batch, whose buffer has no room for the record, but may grow.

        Arguments and errors are those of ``append_new``, the other usual case off the fast path.

        Returns:
            None, with nothing changed, if no batch is open, it would be full, memory is full, or the
            accumulator is closed; ``append`` handles those cases.
        """
        if self._closed:
            return None
        own = self._open.lane(lane.topic_partition)
        record = PendingRecord(timestamp_ms, key, value, headers)
        upper_bytes = record_size_upper_bound(key, value, headers)
        return self._open.grow_within_limit(own, record, upper_bytes, future_type)

    def _begin(  # noqa: PLR0917 (once per batch; positional arguments are cheaper)
        self,
        lane: BatchLane,
        now_ms: float,
        record: PendingRecord,
        future_type: type[FutureT],
        ticket: MemoryTicket | None,
        least_bytes: int,
        likely_bytes: int,
    ) -> FutureT | None:
        """Open a batch with its first record; return None if there is no memory."""
        capacity_bytes = self._open.reserve(ticket, least_bytes, likely_bytes)
        if capacity_bytes is None:
            return None
        batch = None
        try:
            batch, future = self._open.open(lane.topic_partition, now_ms, record, future_type, capacity_bytes)
            self._queues.append(batch)
            self._incomplete[batch] = None
        except BaseException:  # a signal handler may raise after any call: give the reservation back
            if batch is not None:
                batch.charged_bytes = 0  # it may be queued already, and must not release it a second time
            self.memory.release(self._open.charge(capacity_bytes))
            raise
        self._open.publish(lane, batch)  # last: from here other threads append to it without the guard
        return future

    def _appended(self, appended: Appended[FutureT], ticket: MemoryTicket | None) -> Appended[FutureT]:
        if ticket is not None:
            # Another thread has opened a batch with room for the record, so it needs no memory of its own.
            self.memory.cancel(ticket)
        return appended

    def cancel(self, ticket: MemoryTicket) -> None:
        """Give up a place in the line, or release the memory that it got. Repeating this does nothing."""
        self.memory.cancel(ticket)

    # --- drain ----------------------------------------------------------------------------------------------

    def ready(
        self,
        cluster: ClusterMetadata,
        now_ms: float,
        gate: DrainGate = _OPEN_GATE,
        *,
        note: Note | None = None,
    ) -> ReadyCheck:
        """Return the nodes with ready batches, the next check time, and the topics without a leader.

        A partition is ready if its first batch is full, has lingered, or must not linger: a caller waits for
        memory or for a flush, or the accumulator is closed. A batch in backoff waits in any case, unless the
        leader has changed since. For whoever looks, ``note`` is told how each partition stands.
        """
        # A caller that waits for memory waits for batches to be sent, so none of them may linger.
        at_once = self._closed or self._flushes > 0 or self.memory.waiting > 0
        return self._queues.ready(cluster, now_ms, gate, at_once=at_once, note=note)

    def drain(
        self,
        cluster: ClusterMetadata,
        nodes: Container[int],
        max_request_size: int,
        now_ms: float,
        gate: DrainGate = _OPEN_GATE,
    ) -> dict[int, list[ProducerBatch]]:
        """Take the first batch of every partition that ``nodes`` lead, lingering or not.

        A node gets at most ``max_request_size`` bytes, but at least one batch. If ``gate`` raises, no batch
        has left its queue.
        """
        chosen = self._queues.choose(cluster, nodes, max_request_size, now_ms, gate, close=self._open.close)
        # Two passes: if the gate raises for one batch, all batches are still in their queues.
        for batches in chosen.values():
            for batch in batches:
                gate.drained(batch)
        for batches in chosen.values():
            self._queues.take(batches, cluster)
        return chosen

    def lone(self, now_ms: float) -> ProducerBatch | None:
        """Return the only batch that is queued, if it is ready and was never sent; see `take_lone`."""
        at_once = self._closed or self._flushes > 0 or self.memory.waiting > 0
        return self._queues.lone(now_ms, at_once=at_once)

    def take_lone(self, batch: ProducerBatch, cluster: ClusterMetadata, gate: DrainGate) -> None:
        """Take the batch of ``lone``, which the gate admits, as ``drain`` does: alone, whatever its size."""
        self._open.close(batch)
        gate.drained(batch)
        # The order of `drain`: closed, so that its records are counted; numbered; then taken out.
        self._queues.take((batch,), cluster)

    def expire(self, now_ms: float) -> list[ProducerBatch]:
        """Take out the queued batches past their delivery timeout; the caller fails them."""
        expired = self._queues.expire(now_ms)
        for batch in expired:
            # Until here other threads append to an open batch; those records expire with it.
            self._open.close(batch)
        return expired

    def reenqueue(self, batch: ProducerBatch, now_ms: float, *, at_once: bool = False) -> None:
        """Queue a batch in flight for a retry, before all later ones of its partition.

        Args:
            batch: the batch.
            now_ms: the monotonic clock.
            at_once: skip the backoff, because only an earlier batch made the attempt fail.
        """
        batch.advance(BatchEvent.RETRY)
        batch.attempts += 1
        batch.retry_at_ms = now_ms if at_once else self._queues.retry_at_ms(batch, now_ms)
        self._queues.insert(batch)

    def put_back(self, batch: ProducerBatch, now_ms: float) -> None:
        """Queue a drained batch that was not sent; no attempt is counted."""
        batch.advance(BatchEvent.RETRY)
        batch.retry_at_ms = now_ms
        self._queues.insert(batch)

    def outgrew(self, batch: ProducerBatch) -> bool:
        """Whether a closed batch exceeds ``batch_bytes`` because of its expected compression ratio."""
        return batch.record_count > 1 and batch.uncompressed_bytes > self.batch_bytes

    def release_surplus(self, batch: ProducerBatch) -> None:
        """Release the memory that compression has saved as soon as the batch is sealed."""
        released_bytes = batch.charge_sealed(BATCH_OVERHEAD_BYTES)
        if released_bytes:
            self.memory.release(released_bytes)

    def split_and_reenqueue(self, batch: ProducerBatch, now_ms: float) -> list[ProducerBatch]:
        """Replace a batch in flight that the broker found too large by smaller ones.

        The parts keep its place, creation time and memory, share its sequence numbers, and are sent at once;
        no attempt is counted.
        """
        plain_bytes, packed_bytes = batch.uncompressed_bytes - HEADER_BYTES, batch.size_bytes - HEADER_BYTES
        self.compressions.start_over(batch.topic_partition.topic, plain_bytes, packed_bytes)
        parts = split_batch(batch, self.batch_bytes)
        # The parts of a compressed batch need more than it was charged for. They must not wait for memory
        # that only the split would free, so the budget goes into debt (docs/decisions/buffer-memory.md).
        self.memory.owe(-batch.charged_bytes)
        # Its parts have the charge now, so `_finish` must not release it.
        batch.charged_bytes = 0
        self._finish(batch)
        for part in parts:
            part.retry_at_ms = now_ms
            self._incomplete[part] = None
            self._queues.insert(part)
        return parts

    # --- outcomes -------------------------------------------------------------------------------------------

    @property
    def incomplete(self) -> Iterable[ProducerBatch]:
        """The batches without an outcome, queued or in flight."""
        return self._incomplete.keys()

    @property
    def has_incomplete(self) -> bool:
        return bool(self._incomplete)

    def complete(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> BatchOutcome:
        """Complete an acknowledged batch. The caller runs the outcome's waiters, outside the guard."""
        batch.advance(BatchEvent.SUCCEED)
        # After `advance`: a second response raises there, before it can change a result.
        batch.outcome.succeed(base_offset, log_append_time_ms)
        self._finish(batch)
        return batch.outcome

    def fail(
        self,
        batch: ProducerBatch,
        error: BaseException,
        record_errors: Mapping[int, BaseException] | None = None,
    ) -> BatchOutcome:
        """Fail a batch in flight or taken from its queue. The caller runs the outcome's waiters.

        Raises:
            IllegalStateError: the batch still takes records, or has an outcome. Nothing has changed.
        """
        batch.advance(BatchEvent.FAIL)
        batch.outcome.fail(error, record_errors)
        self._finish(batch)
        return batch.outcome

    def abandon(self, batch: ProducerBatch, error: BaseException) -> BatchOutcome:
        """Fail a batch in flight for the application; ``complete`` or ``fail`` release its memory later.

        The broker may still accept it.
        """
        batch.advance(BatchEvent.ABANDON)
        batch.outcome.fail(error)
        # Not `_finish`: a request may still be reading the bytes. Java returns such a buffer to its pool
        # while a socket may still send it (docs/decisions/batch-ownership.md).
        self._incomplete.pop(batch, None)
        return batch.outcome

    def _finish(self, batch: ProducerBatch) -> None:
        self._incomplete.pop(batch, None)
        released_bytes = batch.let_go()
        if released_bytes:
            self.memory.release(released_bytes)

    # --- muting, flush and close ----------------------------------------------------------------------------

    def mute(self, topic_partition: TopicPartition) -> None:
        """Do not drain a partition until ``unmute``: with one request in flight this keeps the order."""
        self._queues.muted.add(topic_partition)

    def unmute(self, topic_partition: TopicPartition) -> None:
        self._queues.muted.discard(topic_partition)

    def begin_flush(self) -> list[BatchOutcome]:
        """Switch linger off until ``end_flush``, and return the outcomes to wait for. Flushes may overlap."""
        self._flushes += 1
        return [batch.outcome for batch in self._incomplete]

    def end_flush(self) -> None:
        """End one ``begin_flush``.

        Raises:
            IllegalStateError: no flush is running.
        """
        if not self._flushes:
            raise IllegalStateError("end_flush() without a begin_flush()")
        self._flushes -= 1

    def close_batches(self) -> None:
        """Close all open batches; later records go into new ones."""
        self._open.close_all()

    def close(self) -> None:
        """Take no more records, make queued batches ready, and refuse callers that wait for memory."""
        self._closed = True
        self._open.close_all()
        self.memory.close()

    def take_queued(self) -> list[ProducerBatch]:
        """Take all batches out of their queues and close them; the caller fails them."""
        queued = list(self._queues)
        self._queues.clear()
        for batch in queued:
            self._open.close(batch)
        return queued

    def abort_batches(self, error: BaseException) -> list[ProducerBatch]:
        """Fail all batches; those in flight stay reserved as after ``abandon``.

        Returns:
            the failed batches; the caller runs their waiters outside the guard.
        """
        self._queues.clear()
        batches = list(self._incomplete)
        for batch in batches:
            self._open.close(batch)
            if batch.state is BatchState.IN_FLIGHT:
                self.abandon(batch, error)
            else:
                self.fail(batch, error)
        return batches

    def abort_unsent(
        self, error: BaseException, unsendable: Callable[[ProducerBatch], bool] | None = None
    ) -> list[ProducerBatch]:
        """Fail queued batches without sequence numbers, and those that are ``unsendable``.

        With idempotence, these are the batches before their first attempt; those that await a retry are
        numbered and stay. Without idempotence, all queued batches fail.

        Returns:
            the failed batches; the caller runs their waiters outside the guard.
        """
        unsent = self._queues.take_unnumbered(unsendable)
        for batch in unsent:
            self._open.close(batch)
            self.fail(batch, error)
        return unsent
