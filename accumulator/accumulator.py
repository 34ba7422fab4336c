"""Records waiting to be sent: what ``send`` appends to and the sender drains.

Nothing here locks, waits or reads a clock. Application threads and the sender share one accumulator by
holding one guard around every call; ``append`` answers at once, and its caller does the waiting. Semantics
are those of Kafka's ``RecordAccumulator`` and ``BufferPool``, with the differences in ``docs/decisions/``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import ClassVar, Final, NamedTuple, TypeVar

from splashdam.accumulator.backoff import exponential_ms
from splashdam.accumulator.batch import BatchEvent, BatchState, ProducerBatch, divide
from splashdam.accumulator.compressions import BatchCompressions
from splashdam.accumulator.memory import MemoryBudget, MemoryTicket
from splashdam.accumulator.open_batches import (
    BATCH_OVERHEAD_BYTES,
    Appended,
    BatchLane,
    OpenBatches,
    PendingRecord,
)
from splashdam.accumulator.readiness import DrainGate, NodeAvailability, OpenGate, PartitionQueues, ReadyCheck
from splashdam.model.cluster import ClusterMetadata
from splashdam.model.errors import IllegalStateError
from splashdam.model.values import HeaderPairs, TopicPartition
from splashdam.record.batch import HEADER_BYTES
from splashdam.record.compression import Compression
from splashdam.record.kernel import BatchOutcome, FutureCell, PartitionLane, record_size_upper_bound

FutureT = TypeVar("FutureT", bound=FutureCell)

_OPEN_GATE = OpenGate()


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


class RecordAccumulator:
    """Batches per TopicPartition within one memory budget.

    A batch reserves what its buffer holds and a constant for its objects, not ``batch_bytes``: it starts as
    large as its partition's last one became, doubles up to ``batch_bytes``, and gives everything back when
    the broker has answered, never while a request may still read its bytes. Futures are the application's
    and are not counted.

    Args:
        batch_bytes: a batch is full at this many bytes, header included, once compressed as is expected of
            its topic. 0 makes batches of one record; a record above it travels alone.
        linger_ms: how long a batch that is not full waits for more records.
        buffer_memory: bytes that all batches together may reserve.
        compression: what the sender seals the batches with.
        topic_compression: likewise, for single topics.
        availability_timeout_ms: see ``NodeAvailability``.
        delivery_timeout_ms: from a batch's creation over queue, flight and retries until it fails.
        retry_backoff_ms: wait before the first retry; doubles with each, times a random factor of 0.8 to 1.2.
        retry_backoff_max_ms: upper limit of that wait.
        random: answers numbers from 0 to 1.

    Attributes:
        compressions: codec of each topic, and what is expected of it.
        availability: which nodes lag.
        limit_bytes: at how many uncompressed bytes a topic's next batch is full.
        lane: the one ``PartitionLane`` of a partition, to which records that fit are appended without a call
            of this class.
        forget_lanes: drops those of other topics than the given ones that take no records now.
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
        self._memory = MemoryBudget(buffer_memory)
        self._incomplete: dict[ProducerBatch, None] = {}
        self._open = OpenBatches(batch_bytes, self._memory, self.compressions)
        self.limit_bytes: Callable[[str], int] = self._open.limit_bytes
        self.lane: Callable[[TopicPartition], PartitionLane] = self._open.lane
        self.forget_lanes: Callable[[Container[str]], None] = self._open.forget_lanes
        self._flushes = 0
        self._closed = False

    # --- looks that change nothing --------------------------------------------------------------------------

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

    # --- records come in ------------------------------------------------------------------------------------

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
        """Appends one record to the partition's last batch, or to a new one.

        Args:
            topic_partition: where the record goes.
            now_ms: the monotonic clock; a new batch's delivery timeout begins here.
            timestamp_ms: the record's own timestamp.
            key, value, headers: the record's parts, which nobody can change any more.
            future_type: class of the future; called with a ``FutureCell``'s arguments.
            ticket: from an earlier ``Exhausted`` for this same record.
            abort_on_new_batch: answer ``BatchFull`` instead of opening a new batch.
            expected_bytes: what will follow soon, as far as it is known: the batch gets room for it at once.

        Raises:
            IllegalStateError: the accumulator is closed, or the ticket was cancelled or used.
            IllegalArgumentError: the ticket is for a smaller record, or the record was changed meanwhile.
            MessageTooLargeError: the record alone exceeds ``buffer_memory``.
            TypeError, OverflowError, UnicodeEncodeError: as ``BatchBuffer.try_append``; nothing has changed.
        """
        lane = self._open.lane(topic_partition)
        future = lane.try_append(timestamp_ms, key, value, headers, future_type)
        if future is not None:
            return self._appended(Appended(future, wake=False), ticket)
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
            exhausted = Exhausted()  # first: nothing comes between a place in the line and who gets it
            exhausted.ticket = ticket or self._memory.queue(self._open.charge(likely_bytes))
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
        """As ``append``, for a record that needs a new batch and finds memory. None: it is not so, or it is
        closed; nothing has changed, and ``append`` says what to do.

        Args:
            lane: of the partition; may be one that was forgotten.
            now_ms, timestamp_ms, key, value, headers, future_type: as ``append`` has them.

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
        """A new batch with its first record; None: there is no memory. If it fails, none is kept.

        A signal handler may raise behind any call.
        """
        capacity_bytes = self._open.reserve(ticket, least_bytes, likely_bytes)
        if capacity_bytes is None:
            return None
        batch = None
        try:
            batch, future = self._open.open(lane.topic_partition, now_ms, record, future_type, capacity_bytes)
            self._queues.append(batch)
            self._incomplete[batch] = None
        except BaseException:
            if batch is not None:
                batch.charged_bytes = 0  # it may be queued, and would give it back once more
            self._memory.release(self._open.charge(capacity_bytes))
            raise
        self._open.publish(lane, batch)  # last: from now on others append to it without the guard
        return future

    def _appended(self, appended: Appended[FutureT], ticket: MemoryTicket | None) -> Appended[FutureT]:
        if ticket is not None:
            self._memory.cancel(ticket)  # it found room in a batch that somebody else has opened
        return appended

    def cancel(self, ticket: MemoryTicket) -> None:
        """Gives a place in the line, or the memory it got, back. Repeating it does nothing."""
        self._memory.cancel(ticket)

    # --- batches go out -------------------------------------------------------------------------------------

    def ready(self, cluster: ClusterMetadata, now_ms: float, gate: DrainGate = _OPEN_GATE) -> ReadyCheck:
        """Which nodes have something to send, when to ask again, and which topics lack a leader.

        A partition is ready if its first batch is full, has lingered, or must not linger: somebody waits for
        memory or for a flush, or the accumulator is closed. A batch that backs off after a failure waits in
        any case, unless the leader has changed since.
        """
        at_once = self._closed or self._flushes > 0 or self._memory.waiting > 0
        return self._queues.ready(cluster, now_ms, gate, at_once=at_once)

    def drain(
        self,
        cluster: ClusterMetadata,
        nodes: Container[int],
        max_request_size: int,
        now_ms: float,
        gate: DrainGate = _OPEN_GATE,
    ) -> dict[int, list[ProducerBatch]]:
        """Takes the first batch of every partition led by ``nodes``, lingering or not; they are in flight
        then.

        A request gets at most ``max_request_size`` bytes, but at least one batch. If ``gate`` raises, no
        batch has left its queue.
        """
        chosen = self._queues.choose(cluster, nodes, max_request_size, now_ms, gate, close=self._open.close)
        for batches in chosen.values():
            for batch in batches:
                gate.drained(batch)
        for batches in chosen.values():  # only now: until all have their numbers, none leaves its queue
            self._queues.take(batches, cluster)
        return chosen

    def expire(self, now_ms: float) -> list[ProducerBatch]:
        """Takes out the batches whose delivery timeout has passed in their queue; the caller fails them."""
        expired = self._queues.expire(now_ms)
        for batch in expired:
            self._open.close(batch)
        return expired

    def reenqueue(self, batch: ProducerBatch, now_ms: float, *, at_once: bool = False) -> None:
        """Queues a batch in flight for its next attempt, before all later ones of its partition.

        Args:
            batch: the batch.
            now_ms: the monotonic clock.
            at_once: no backoff, because this attempt failed only for what came before it.
        """
        batch.advance(BatchEvent.RETRY)
        batch.attempts += 1
        batch.retry_at_ms = now_ms if at_once else self._queues.retry_at_ms(batch, now_ms)
        self._queues.insert(batch)

    def put_back(self, batch: ProducerBatch, now_ms: float) -> None:
        """Queues a batch in flight again that was not sent after all; no attempt is counted."""
        batch.advance(BatchEvent.RETRY)
        batch.retry_at_ms = now_ms
        self._queues.insert(batch)

    def outgrew(self, batch: ProducerBatch) -> bool:
        """Whether a closed batch holds more than it could without an estimate of compression."""
        return batch.record_count > 1 and batch.uncompressed_bytes > self.batch_bytes

    def give_surplus_back(self, batch: ProducerBatch) -> None:
        """A batch in flight was compressed: what it does not take any more is free."""
        released_bytes = batch.charge_sealed(BATCH_OVERHEAD_BYTES)
        if released_bytes:
            self._memory.release(released_bytes)

    def split_and_reenqueue(self, batch: ProducerBatch, now_ms: float) -> list[ProducerBatch]:
        """Replaces a batch in flight, which the broker found too large, by smaller ones at its place.

        The parts keep its creation time and its memory, continue its sequence numbers, and are sent at once;
        no attempt is counted. Where they take more memory, as after compression, nothing waits for it.
        """
        plain_bytes, packed_bytes = batch.uncompressed_bytes - HEADER_BYTES, batch.size_bytes - HEADER_BYTES
        self.compressions.start_over(batch.topic_partition.topic, plain_bytes, packed_bytes)
        parts = divide(batch, self.batch_bytes)
        self._memory.owe(-batch.charged_bytes)
        batch.charged_bytes = 0
        self._finish(batch)
        for part in parts:
            part.retry_at_ms = now_ms
            self._incomplete[part] = None
            self._queues.insert(part)
        return parts

    # --- the outcome of batches -----------------------------------------------------------------------------

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

    # --- muting, flush and close ----------------------------------------------------------------------------

    def mute(self, topic_partition: TopicPartition) -> None:
        """Sends nothing more of a partition until ``unmute``."""
        self._queues.muted.add(topic_partition)

    def unmute(self, topic_partition: TopicPartition) -> None:
        """Ends ``mute``."""
        self._queues.muted.discard(topic_partition)

    def begin_flush(self) -> list[BatchOutcome]:
        """Cuts linger until ``end_flush`` and names what is incomplete now. Flushes may overlap."""
        self._flushes += 1
        return [batch.outcome for batch in self._incomplete]

    def end_flush(self) -> None:
        """Ends one ``begin_flush``.

        Raises:
            IllegalStateError: there was none.
        """
        if not self._flushes:
            raise IllegalStateError("end_flush() without a begin_flush()")
        self._flushes -= 1

    def close_batches(self) -> None:
        """What is appended from now on goes into new batches."""
        self._open.close_all()

    def close(self) -> None:
        """Takes no more records; what is queued becomes sendable, whoever waits for memory is sent away."""
        self._closed = True
        self._open.close_all()
        self._memory.close()

    def take_queued(self) -> list[ProducerBatch]:
        """Takes every batch out of its queue, closed; the caller fails them."""
        queued = list(self._queues)
        self._queues.clear()
        for batch in queued:
            self._open.close(batch)
        return queued

    def abort_batches(self, error: BaseException) -> list[ProducerBatch]:
        """Fails everything: queued batches for good, those in flight for the application.

        Returns:
            the batches whose outcomes' waiters the caller runs, outside the guard.
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
        self, error: BaseException, hopeless: Callable[[ProducerBatch], bool] | None = None
    ) -> list[ProducerBatch]:
        """Fails the queued batches that have no sequence number, and those that are ``hopeless``.

        For an idempotent producer: what waits for its first attempt. Its batches that wait for a retry have
        numbers and stay; without idempotence none has, and everything queued fails.

        Returns:
            the batches whose outcomes' waiters the caller runs, outside the guard.
        """
        unsent = self._queues.take_unnumbered(hopeless)
        for batch in unsent:
            self._open.close(batch)
            self.fail(batch, error)
        return unsent
