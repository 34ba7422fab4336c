"""What a log says without changing: where it begins and ends, its batches, offsets by time, aborted data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, cast

from splashdam.model.broker_errors import KafkaStorageError, OffsetOutOfRangeError
from splashdam.model.errors import IllegalStateError
from splashdam.model.values import Buffer, TopicPartition
from splashdam.record.batch import BatchHeader
from splashdam.record.compression import MAX_DECOMPRESSED_BYTES
from splashdam.storage.append_result import LogState
from splashdam.storage.files.disk import BytesSlice, FileSlice
from splashdam.storage.index.txn_index import AbortedTransaction
from splashdam.storage.leader_epochs import EpochEnd
from splashdam.storage.recovery.loader import LoadedLog
from splashdam.storage.recovery.scan import iter_headers
from splashdam.storage.segment import LogSegment
from splashdam.storage.settings import LogSettings
from splashdam.storage.timestamp_lookup import (
    FoundRecord,
    Search,
    TimestampOffset,
    find_timestamp,
)

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
"""What ``offset_for_timestamp`` takes for a timestamp and answers without comparing any."""

NO_TIMESTAMP = -1
_NOTHING = BytesSlice(b"")


class Replication(Protocol):
    """What a log that has other replicas knows of them; see ``embedded_broker/replication``."""

    @property
    def leader_epoch(self) -> int:
        """In which the partition is led, here or elsewhere."""
        ...

    def check_leading(self) -> None:
        """Raises NotLeaderOrFollowerError where another broker leads, or nobody does."""
        ...

    def check_enough_in_sync(self) -> None:
        """Before an append that all replicas in sync are to have; raises NotEnoughReplicasError."""
        ...

    def advance(self) -> None:
        """The log has grown: the high watermark moves as far as it may."""
        ...

    @property
    def term(self) -> int:
        """Another one after each time that somebody else led: what was appended before may be gone."""
        ...

    def log_failed(self) -> None:
        """The log takes nothing any more: another replica is to lead."""
        ...

    async def wait_replicated(self, offset: int, term: int) -> None:
        """Returns when everything below ``offset``, appended in this term, is on all replicas in sync.

        Raises:
            NotLeaderOrFollowerError: somebody else leads, or has led; it may or may not have it.
            NotEnoughReplicasAfterAppendError: it is, but they have become too few.
        """
        ...

    async def wait_deleted(self, offset: int) -> None:
        """Returns when nobody who may lead next has anything below ``offset`` any more.

        Raises:
            NotLeaderOrFollowerError: somebody else leads.
        """
        ...


class ReadableLog:
    """The reading half of ``Log``.

    Attributes:
        topic_partition: what it is the log of.
        topic_id: 16 bytes.
        directory: where its files are.
        settings: of its topic.
        state: open, failed or closed.
        producers: what it remembers of idempotent producers.
        log_start_offset: the first offset that may be read.
        log_end_offset: the offset the next record gets.
        high_watermark: readers see what is below; the end of the log, unless it is replicated.
        replication: what is known of its other replicas; None where it has none.
        moved: where it puts itself whenever its high watermark has moved; who keeps those gives it that.
    """

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        settings: LogSettings,
        loaded: LoadedLog,
        *,
        topic_id: bytes,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.directory = directory
        self.settings = settings
        self.state = LogState.OPEN
        self.producers = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = self.high_watermark = loaded.log_end_offset
        self.replication: Replication | None = None
        self.moved: dict[ReadableLog, None] | None = None
        self._segments = loaded.segments
        self._epochs = loaded.epochs
        self._undecided: list[tuple[int, int]] = []  # first offsets and markers of transactions; see below

    @property
    def leader_epoch(self) -> int:
        """The present leader's; of a log without other replicas the newest that wrote here, or 0."""
        return max(self._epochs.latest, 0) if self.replication is None else self.replication.leader_epoch

    @property
    def leader_epoch_start(self) -> int:
        """The log's end when its newest epoch began, 0 where none has."""
        return self._epochs.entries[-1][1] if self._epochs.entries else 0

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Where a leader epoch ends, or the largest known one below; both are -1 where that is not known."""
        return self._epochs.end_of(epoch, self.log_end_offset)

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, as far as it is known; -1 where it is not."""
        return self._epochs.latest

    @property
    def last_stable_offset(self) -> int:
        """What read_committed readers see the log up to: the first open transaction or the high watermark.

        A transaction is open for them until the high watermark is above its marker: until then another
        leader may not have it.
        """
        unstable = self.producers.first_unstable_offset
        if self._undecided:
            first = min(first for first, _ in self._undecided)
            unstable = first if unstable is None else min(first, unstable)
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.log_start_offset), self.high_watermark)

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """The segments at this moment, the active one last."""
        return self._segments.all

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches on disk, those below the log's start that share a segment with it included."""
        return sum(segment.size_bytes for segment in self._segments.all)

    def largest_timestamp(self, segment: LogSegment) -> int:
        """Largest timestamp of one of its segments, or when its file was written, if records have none.

        Raises:
            KafkaStorageError: it cannot be read.
        """
        self._look_at(segment)
        return segment.largest_timestamp

    def first_timestamp(self, segment: LogSegment) -> int:
        """Timestamp of the first batch of one of its segments, -1 where it has none.

        Raises:
            KafkaStorageError: it cannot be read.
            CorruptMessageError: the batch is damaged.
        """
        self._look_at(segment)
        head = next(segment.heads_from(segment.base_offset), None)
        return NO_TIMESTAMP if head is None else head.max_timestamp

    def _look_at(self, segment: LogSegment) -> None:
        if segment is not self._segments.active:
            self._segments.touch(segment)  # looking opens its files

    def read(
        self, offset: int, max_bytes: int, *, min_one_batch: bool = True, up_to: int | None = None
    ) -> FileSlice:
        """Batches from the one that holds ``offset`` on, out of one segment.

        The slice begins with a whole batch, so records below ``offset`` may come along; ``max_bytes`` may
        cut the last one, which readers skip.

        Args:
            offset: the first record wanted.
            max_bytes: most bytes to return.
            min_one_batch: return the first batch even where it is larger than ``max_bytes``.
            up_to: return nothing from this offset on; by default the high watermark.

        Returns:
            A slice, empty where there is nothing to read below ``up_to``. The caller closes it.

        Raises:
            OffsetOutOfRangeError: ``offset`` is below the log's start or above its end.
            KafkaStorageError: the log cannot be read.
        """
        if self.state is LogState.CLOSED:
            self._refuse("read")
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is outside {self.log_start_offset} to {self.log_end_offset} "
                f"of {self.topic_partition}"
            )
        limit = self.high_watermark if up_to is None else min(up_to, self.log_end_offset)
        if offset >= limit:
            return _NOTHING
        for segment in self._segments.walk_from(offset):
            head = segment.find(offset)
            if head is not None:
                available = self._position_of(limit, segment) - head.position
                size = min(max_bytes, available)
                if size < head.size_bytes:
                    size = head.size_bytes if min_one_batch and available > 0 else 0
                return segment.log.slice(head.position, size) if size else _NOTHING
        return _NOTHING

    def batches(self) -> Iterator[tuple[BatchHeader, Buffer]]:
        """Every batch that the log holds at this moment, control batches included, from the oldest on.

        Raises:
            CorruptMessageError: a header is damaged.
            KafkaStorageError: the log cannot be read.
        """
        for segment in self._segments.walk_from(self.log_start_offset):
            for position, header in iter_headers(segment.log, 0):
                yield header, segment.log.read(position, header.size_bytes)

    def _position_of(self, limit: int, segment: LogSegment) -> int:
        """Where in a segment the batches from offset ``limit`` on begin."""
        if limit >= self.log_end_offset:
            return segment.size_bytes
        head = segment.find(limit)
        return segment.size_bytes if head is None else head.position

    def offset_for_timestamp(self, timestamp_ms: int, *, up_to: int | None = None) -> TimestampOffset:
        """What ``search_timestamp`` finds, in one go, however long that takes."""
        search = self.search_timestamp(timestamp_ms, up_to=up_to)
        found: FoundRecord | None = None
        try:
            while True:
                due = search.send(found)
                found = None if isinstance(due, int) else due.do(MAX_DECOMPRESSED_BYTES)
        except StopIteration as done:
            return cast("TimestampOffset", done.value)

    def search_timestamp(self, timestamp_ms: int, *, up_to: int | None = None) -> Search[TimestampOffset]:
        """The first offset, in offset order, of a record at least as late as ``timestamp_ms``.

        -1 (``LATEST``) gives ``up_to``, -2 (``EARLIEST``) the start of the log, -3 (``MAX_TIMESTAMP``) the
        first record with the largest timestamp. Offset and timestamp are -1 where no record fits, or where it
        is not below ``up_to``, by default the high watermark.

        Raises:
            KafkaStorageError: the log cannot be read, or was closed meanwhile.
        """
        if self.state is LogState.CLOSED:
            self._refuse("read")
        up_to = self.high_watermark if up_to is None else up_to
        if timestamp_ms == LATEST:
            return TimestampOffset(up_to, NO_TIMESTAMP, self.leader_epoch)
        if timestamp_ms == EARLIEST:
            start = self.log_start_offset
            return TimestampOffset(start, NO_TIMESTAMP, self._epochs.epoch_of(start))
        wanted = None if timestamp_ms == MAX_TIMESTAMP else timestamp_ms
        found = yield from find_timestamp(
            self._segments, wanted, self.log_start_offset, up_to, self._check_still_open
        )
        if found is None:
            return TimestampOffset(-1, NO_TIMESTAMP, -1)
        return TimestampOffset(found.offset, found.timestamp_ms, self._epochs.epoch_of(found.offset))

    def fetch_bound(self, offset: int, size_bytes: int) -> int:
        """An offset that is not below the end of so many bytes, as ``read`` gave them for ``offset``.

        As close as the index tells, so that a reader hears of the aborted transactions in what it got and not
        of all that follow.

        Raises:
            KafkaStorageError: the log cannot be read.
        """
        segments = self._segments.walk_from(offset)
        for segment in segments:
            head = segment.find(offset)
            if head is not None:
                bound = segment.offset_index.offset_behind(head.position + size_bytes)
                following = next(segments, None) if bound is None else None
                if following is not None:
                    bound = following.base_offset
                return self.log_end_offset if bound is None else bound
        return self.log_end_offset

    def aborted_transactions(self, offset: int, up_to: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [``offset``, ``up_to``), in the order of their markers.

        Raises:
            KafkaStorageError: an index cannot be read.
        """
        return self._segments.aborted_transactions(offset, up_to)

    def _is_closed(self) -> bool:
        return self.state is LogState.CLOSED

    def _check_still_open(self) -> None:
        if self.state is LogState.CLOSED:
            raise KafkaStorageError(f"the log of {self.topic_partition} was closed meanwhile")

    def _refuse(self, call: str) -> None:
        """Raises what fits a call that the state does not allow."""
        if self.state is LogState.FAILED:
            raise KafkaStorageError(f"{self.directory} is read-only since a sync to disk failed; no {call}")
        raise IllegalStateError(f"no {call} on the log of {self.topic_partition}: it is {self.state.value}")
