"""One batch of records for one partition: its states as a table, its bytes, its memory charge."""

from __future__ import annotations

from collections.abc import Callable
from enum import auto

from splashdam.model.errors import IllegalStateError
from splashdam.model.lifecycle import Stage, next_state
from splashdam.model.values import TopicPartition
from splashdam.record.batch import HEADER_BYTES, Codec
from splashdam.record.compression import Compression
from splashdam.record.kernel import BatchBuffer, BatchOutcome
from splashdam.record.sealing import restamp_producer, seal

NO_PRODUCER_ID = -1

SEQUENCE_COUNT = 1 << 31
"""Number of sequence numbers: 0 to 2,147,483,647."""

NO_SEQUENCE = -1
"""Sequence of a batch that is not numbered."""

_NO_BUFFER = BatchBuffer(HEADER_BYTES)
"""Replaces the append buffer of a batch that has released it; no record fits into it."""


def _forget(_buffer: BatchBuffer, _released_bytes: int) -> None:
    """The ``recycle`` of batches whose buffers are not reused."""


class BatchState(Stage):
    OPEN = auto()
    """Queued, and takes records from any thread that holds the guard."""
    CLOSED = auto()
    """Queued (or just taken out because it expired); takes no more records."""
    IN_FLIGHT = auto()
    """Owned by the sender: being sealed or sent, or awaiting its response."""
    ABANDONED = auto()
    """Failed for the application, but a request that holds its bytes is still in flight."""
    SUCCEEDED = auto()
    FAILED = auto()
    SPLIT = auto()
    """Replaced by smaller batches."""


class BatchEvent(Stage):
    CLOSE = auto()
    DRAIN = auto()
    RETRY = auto()
    SUCCEED = auto()
    FAIL = auto()
    ABANDON = auto()
    SPLIT = auto()


TRANSITIONS: dict[tuple[BatchState, BatchEvent], BatchState] = {
    (BatchState.OPEN, BatchEvent.CLOSE): BatchState.CLOSED,
    (BatchState.CLOSED, BatchEvent.DRAIN): BatchState.IN_FLIGHT,
    (BatchState.CLOSED, BatchEvent.FAIL): BatchState.FAILED,
    (BatchState.IN_FLIGHT, BatchEvent.RETRY): BatchState.CLOSED,
    (BatchState.IN_FLIGHT, BatchEvent.SUCCEED): BatchState.SUCCEEDED,
    (BatchState.IN_FLIGHT, BatchEvent.FAIL): BatchState.FAILED,
    (BatchState.IN_FLIGHT, BatchEvent.ABANDON): BatchState.ABANDONED,
    (BatchState.IN_FLIGHT, BatchEvent.SPLIT): BatchState.SPLIT,
    # The failure has been reported; a later response only releases the memory.
    (BatchState.ABANDONED, BatchEvent.SUCCEED): BatchState.FAILED,
    (BatchState.ABANDONED, BatchEvent.FAIL): BatchState.FAILED,
    (BatchState.FAILED, BatchEvent.SUCCEED): BatchState.FAILED,
    (BatchState.FAILED, BatchEvent.FAIL): BatchState.FAILED,
}
"""The legal events of each state. SUCCEEDED and SPLIT have none: a second response would be a bug."""


class ProducerBatch:
    """Records for one partition, from the first append to the broker's response.

    Attributes:
        topic_partition: where it goes.
        outcome: the shared state of its futures.
        state: see ``BatchState``.
        buffer: the records while they are appended; released once sealed.
        record_count: number of records, known from ``close`` on.
        uncompressed_bytes: size with header before compression, known from ``close`` on.
        base_timestamp_ms, max_timestamp_ms: of the first record and the highest, known from ``close`` on.
        expected_part: expected compression ratio; 1.0 without a codec.
        created_ms: start of the delivery timeout; parts of a split batch inherit it.
        place: orders the batches of a partition by their first append, across retries and splits. Sequence
            numbers cannot, since a producer without idempotence has none.
        charged_bytes: its reservation in the memory budget; 0 once released.
        attempts: failed attempts.
        retry_at_ms: end of the backoff before the next attempt.
        leader_epoch: of the leader it was last sent to, -1 if unknown.
        producer_id, producer_epoch, base_sequence: -1 until the sender numbers it at the first drain.
        last_error: why the last attempt failed.
        maybe_written: an attempt under its current numbers may have been written: no response ruled it out.
        part_in_doubt: it is a part of a batch that may have been written under these numbers. A broker
            detects a repeated batch by its first and last sequence, so it does not recognize a part.
        transactional: it belongs to a transaction; set when it is numbered.
    """

    __slots__ = (
        "_memory",
        "_recycle",
        "_sealed",
        "_stamp",
        "attempts",
        "base_sequence",
        "base_timestamp_ms",
        "buffer",
        "charged_bytes",
        "created_ms",
        "expected_part",
        "last_error",
        "leader_epoch",
        "max_timestamp_ms",
        "maybe_written",
        "outcome",
        "part_in_doubt",
        "place",
        "producer_epoch",
        "producer_id",
        "record_count",
        "retry_at_ms",
        "state",
        "topic_partition",
        "transactional",
        "uncompressed_bytes",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        buffer: BatchBuffer,
        created_ms: float,
        charged_bytes: int,
        place: int = 0,
        *,
        recycle: Callable[[BatchBuffer, int], None] = _forget,
    ) -> None:
        self.topic_partition = topic_partition
        self.outcome = BatchOutcome(topic_partition)
        self.state = BatchState.OPEN
        self.buffer = buffer
        self.record_count = 0
        self.uncompressed_bytes = 0
        self.base_timestamp_ms = self.max_timestamp_ms = -1
        self.expected_part = 1.0
        self.created_ms = created_ms
        self.place = place
        self.charged_bytes = charged_bytes
        self.attempts = 0
        self.retry_at_ms = created_ms
        self.leader_epoch = -1
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = -1
        self.base_sequence = NO_SEQUENCE
        self.last_error: BaseException | None = None
        self.maybe_written = self.part_in_doubt = False
        self.transactional = False
        self._memory: BatchBuffer | None = buffer
        self._recycle = recycle
        self._sealed: memoryview | None = None
        self._stamp: tuple[int, int, int] | None = None

    def advance(self, event: BatchEvent) -> None:
        """Move to the next state of the table.

        Raises:
            IllegalStateError: the event is not legal in this state; nothing has changed.
        """
        try:  # not next_state(): each batch passes here a few times, and a call costs as much as the look-up
            self.state = TRANSITIONS[self.state, event]
        except KeyError:
            next_state(TRANSITIONS, self.state, event, self)  # raises with state and event

    def __str__(self) -> str:
        return f"a batch for {self.topic_partition}"

    def close(self) -> None:
        """Take no more records."""
        if self.state is BatchState.OPEN:
            self.record_count = self.buffer.record_count  # first: a closed batch must have its count
            self.uncompressed_bytes = self.buffer.size_bytes
            self.base_timestamp_ms = self.buffer.base_timestamp_ms
            self.max_timestamp_ms = self.buffer.max_timestamp_ms
            self.advance(BatchEvent.CLOSE)

    @property
    def size_bytes(self) -> int:
        """Size in a request: exact once sealed, before that by the expected compression ratio.

        Incompressible records become slightly larger than their uncompressed size.
        """
        if self._sealed is not None:
            return len(self._sealed)
        size_bytes = self.buffer.size_bytes
        return size_bytes if self.expected_part == 1.0 else int(size_bytes * self.expected_part)

    @property
    def records_now(self) -> int:
        """Number of records, also of an open batch."""
        return self.buffer.record_count if self.state is BatchState.OPEN else self.record_count

    @property
    def open(self) -> bool:
        return self.state is BatchState.OPEN

    @property
    def sequenced(self) -> bool:
        """Whether it has sequence numbers, so that the broker can detect a duplicate."""
        return self.base_sequence != NO_SEQUENCE

    def seal(self, compression: Compression) -> memoryview:
        """Return the bytes to send, with current producer id, epoch and sequence.

        The first call compresses, checksums and releases the append buffer; later ones rewrite the header if
        the numbers changed. Only legal in flight, when no earlier request can still be reading the bytes:
        Java rewrites headers that a socket may be sending (docs/decisions/batch-ownership.md).
        """
        if self.state not in (BatchState.IN_FLIGHT, BatchState.ABANDONED):
            raise IllegalStateError(f"{self} that is {self.state.name} cannot be sealed")
        stamp = (self.producer_id, self.producer_epoch, self.base_sequence)
        if self._sealed is None:
            self._sealed = seal(
                self.buffer,
                compression,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.base_sequence,
                transactional=self.transactional,
            )
            self.buffer = _NO_BUFFER
            if compression.codec is not Codec.NONE:
                self._recycle_buffer(0)  # 0: the compressed copy takes over the charge
        elif stamp != self._stamp:
            restamp_producer(self._sealed, *stamp)
        self._stamp = stamp
        return self._sealed

    @property
    def sealed(self) -> memoryview | None:
        """The sealed bytes, None before the first attempt."""
        return self._sealed

    def charge_sealed(self, overhead_bytes: int) -> int:
        """Lower the charge to the sealed size; return the bytes to release.

        0 without compression, where the append buffer itself is sent.
        """
        if self._sealed is None or self._memory is not None:
            return 0
        released_bytes = max(self.charged_bytes - len(self._sealed) - overhead_bytes, 0)
        self.charged_bytes -= released_bytes
        return released_bytes

    def let_go(self) -> int:
        """Drop the bytes and return the bytes to release: the charge on the first call, then 0.

        An application may keep futures for long, and through them the outcome, but never this batch.
        """
        self.buffer = _NO_BUFFER
        self._sealed = None
        self._recycle_buffer(self.charged_bytes)
        self.last_error = None
        charged_bytes, self.charged_bytes = self.charged_bytes, 0
        return charged_bytes

    def _recycle_buffer(self, released_bytes: int) -> None:
        # Given away once: a buffer that is pooled twice would serve two batches at a time.
        buffer, self._memory = self._memory, None
        if buffer is not None:
            self._recycle(buffer, released_bytes)


# Sequence numbers count records and wrap from 2,147,483,647 to 0. Comparing them with `<` is wrong across the
# wrap, so every comparison goes through `is_earlier`.


def sequence_after(sequence: int, records: int) -> int:
    """Return the sequence that lies ``records`` after ``sequence``."""
    return (sequence + records) % SEQUENCE_COUNT


def is_earlier(sequence: int, other: int) -> bool:
    """Return whether ``sequence`` comes before ``other``; they must be less than half the range apart."""
    return 0 < (other - sequence) % SEQUENCE_COUNT < SEQUENCE_COUNT // 2
