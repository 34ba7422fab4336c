"""The log of one partition: batches in segments, appended to by its leader, read by offset or timestamp.

All methods belong to one thread (the broker's loop); ``sync`` alone leaves it while the disk works. Bytes
handed out are ``FileSlice``s, which outlive whatever happens to the log. What of it is not on stable storage
yet is the flusher's business (``flushing.py``); how its files are made, cut and removed stands in
``log_files.py``.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from typing import NamedTuple, Protocol, cast

from splashdam.model.broker_errors import CorruptMessageError, KafkaStorageError, OffsetOutOfRangeError
from splashdam.model.errors import IllegalStateError
from splashdam.model.values import Buffer, TopicPartition
from splashdam.record.batch import LOG_APPEND_TIME_BIT, BatchHeader, parse_header, stamp_log_append_time
from splashdam.record.compression import MAX_DECOMPRESSED_BYTES
from splashdam.record.stored import iter_stored_headers, stored_crc_ok
from splashdam.storage.append_checks import check_batch, check_size
from splashdam.storage.files.disk import Files
from splashdam.storage.files.log_file import BytesSlice, FileSlice
from splashdam.storage.leader_epochs import EpochEnd
from splashdam.storage.log_files import LogFiles
from splashdam.storage.producers.replay import replay_batch
from splashdam.storage.producers.state import (
    CompletedTransaction,
    ProducerStates,
    RefusedBatches,
    RememberedBatch,
)
from splashdam.storage.recovery import LoadedLog, LogLoader
from splashdam.storage.retention import LogFacts, reasons_to_go
from splashdam.storage.segments.batch_scan import iter_headers
from splashdam.storage.segments.indexes import AbortedTransaction
from splashdam.storage.segments.segment import LogSegment
from splashdam.storage.settings import LogSettings
from splashdam.storage.timestamp_lookup import FoundRecord, Search, TimestampOffset, find_timestamp
from splashdam.storage.transaction_marker import TransactionMarker

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
"""What ``offset_for_timestamp`` takes for a timestamp and answers without comparing any."""

NO_TIMESTAMP = -1
_NOTHING = BytesSlice(b"")
_ASSIGNED = struct.Struct(">qii")  # baseOffset, batchLength, partitionLeaderEpoch: all that a leader changes
_logger = logging.getLogger(__name__)


class LogState(Enum):
    """Life of a log: open → failed → closed, or open → closed.

    Open allows everything, failed reads and ``close``, closed nothing but a second ``close``.
    """

    OPEN = "open"
    FAILED = "failed"  # a sync failed: what the disk has is unknown, so nothing more is promised
    CLOSED = "closed"


class AppendResult(NamedTuple):
    """Where a batch went.

    Attributes:
        base_offset: offset of its first record.
        last_offset: offset of its last record.
        log_append_time_ms: when it was written, -1 where the topic uses CreateTime; of a duplicate, as in
            Kafka, the newest timestamp of its records in either case.
        log_start_offset: first offset of the log.
        duplicate: nothing was written: the log has this batch of this producer already, at these offsets.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


class Log:
    """One partition's log; made by ``Log.open``.

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
        flusher: brings it to stable storage.
        swapper: puts the copies that compaction makes into the place of segments.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        topic_partition: TopicPartition,
        settings: LogSettings,
        loaded: LoadedLog,
        *,
        topic_id: bytes,
        recovery_point: int,
        now_ms: int,
        on_work: Callable[[Log], None],
        recovered_high_watermark: int | None,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.settings = settings
        self.state = LogState.OPEN
        self.producers = loaded.producers
        self.log_start_offset = self._checkpointed_start = loaded.log_start_offset
        self.log_end_offset = self.high_watermark = loaded.log_end_offset
        self.replication: Replication | None = None
        self.moved_high_watermarks: dict[Log, None] | None = None
        self._disk = files
        self._on_work = partial(on_work, self)
        self._recovered_high_watermark = recovered_high_watermark
        self._undecided: list[tuple[int, int]] = []  # first offsets and markers; see last_stable_offset
        self._refused = RefusedBatches()
        self._use(directory, loaded, recovery_point, now_ms, names_are_synced=loaded.is_unchanged)

    def _use(
        self,
        directory: str,
        loaded: LoadedLog,
        recovery_point: int,
        flushed_ms: int,
        *,
        names_are_synced: bool,
    ) -> None:
        self.directory = directory
        self._files = files = LogFiles(
            self,
            self._disk,
            directory,
            loaded,
            recovery_point=recovery_point,
            flushed_ms=flushed_ms,
            names_are_synced=names_are_synced,
            on_work=self._on_work,
        )
        self.flusher = files.flusher
        self.swapper = files.swapper
        self._segments = files.segments
        self._epochs = files.epochs

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        topic_partition: TopicPartition,
        settings: LogSettings,
        *,
        topic_id: bytes,
        now_ms: int,
        clean_shutdown: bool,
        recovery_point: int,
        log_start_offset: int = 0,
        high_watermark: int | None = None,
        on_work: Callable[[Log], None] = lambda _: None,
    ) -> Log:
        """Opens the log in ``directory``, which exists, repairing what a crash left.

        Args:
            files: the file system.
            directory: absolute path of the partition's directory; an empty one becomes an empty log.
            topic_partition: what it is the log of.
            settings: of its topic.
            topic_id: 16 bytes.
            now_ms: wall clock, milliseconds since the epoch.
            clean_shutdown: the files were closed in order; nothing but the tail is checked.
            recovery_point: everything below was flushed; used after a crash.
            log_start_offset: as checkpointed, 0 where it is not.
            high_watermark: as checkpointed, None where it is not; counts where the log is replicated.
            on_work: called when a segment waits for its flush, or files for their end.

        Raises:
            KafkaStorageError: the files cannot be read or repaired.
        """
        loader = LogLoader(files, directory, settings, log_start_offset=log_start_offset, now_ms=now_ms)
        loaded = loader.load(clean_shutdown=clean_shutdown, recovery_point=recovery_point)
        loaded.producers.restart_clocks(now_ms)
        end = loaded.log_end_offset
        return cls(
            files,
            directory,
            topic_partition,
            settings,
            loaded,
            topic_id=topic_id,
            recovery_point=end if clean_shutdown else min(recovery_point, end),
            now_ms=now_ms,
            on_work=on_work,
            recovered_high_watermark=high_watermark,
        )

    def reconfigure(self, settings: LogSettings) -> None:
        """Other settings apply from now on, to the segment that is written, too."""
        self.settings = settings
        if self.state is not LogState.CLOSED:
            self._segments.active.reconfigure(settings)

    @property
    def is_open(self) -> bool:
        return self.state is LogState.OPEN

    @property
    def is_closed(self) -> bool:
        return self.state is LogState.CLOSED

    def check_open(self, call: str) -> None:
        """Refuses a call where the log is not open.

        Raises:
            KafkaStorageError: a sync has failed, and the log is read-only.
            IllegalStateError: it is closed.
        """
        if self.state is not LogState.OPEN:
            self._refuse(call)

    def _refuse(self, call: str) -> None:
        """Raises what fits a call that the state does not allow."""
        if self.state is LogState.FAILED:
            raise KafkaStorageError(f"{self.directory} is read-only since a sync to disk failed; no {call}")
        raise IllegalStateError(f"no {call} on the log of {self.topic_partition}: it is {self.state.value}")

    # --- what it is -----------------------------------------------------------------------------------------

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

    # --- reading --------------------------------------------------------------------------------------------

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

    def _check_still_open(self) -> None:
        if self.state is LogState.CLOSED:
            raise KafkaStorageError(f"the log of {self.topic_partition} was closed meanwhile")

    # --- appending ------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        batch: Buffer,
        *,
        now_ms: int,
        leader_epoch: int | None = None,
        header: BatchHeader | None = None,
    ) -> AppendResult:
        """Appends one batch as a producer sent it: all of it, or on any error nothing.

        What is changed of it (base offset, leader epoch) is changed on the way to the disk; ``batch`` itself
        is neither written to nor copied, unless its checksum changes: with LogAppendTime, and where its
        header tells a wrong maximum timestamp.

        Args:
            batch: exactly one batch of format 2.
            now_ms: wall clock, milliseconds since the epoch.
            leader_epoch: the leader's; by default the newest epoch of this log.
            header: what ``check_batch`` returned with the batch: it is not checked again.

        Raises:
            BrokerResponseError: what ``check_batch`` refuses, ``ProducerStates.check`` refuses, or
                KafkaStorageError where the disk does not take it.
            IllegalStateError: the log is closed.
        """
        if self.state is not LogState.OPEN:
            self._refuse("append")
        if header is None:
            batch, header = check_batch(batch, self.settings, now_ms)
        if header.producer_id >= 0:
            if self._refused:
                self._refused.check(header, now_ms)
            earlier = self.producers.check(header)
            if earlier is not None:
                return self._duplicate(earlier)
        if self.settings.uses_log_append_time:
            batch, header = _stamp(batch, header, now_ms)
        try:
            appended = self._write(batch, header, now_ms, leader_epoch)
        except KafkaStorageError as error:
            self._refused.note(header, error, now_ms)
            raise
        if header.producer_id >= 0:
            self.producers.record(header, appended.base_offset, now_ms)
            if self._refused:
                self._refused.pop(header.producer_id, None)
        return appended

    def append_as_coordinator(self, batch: Buffer, *, now_ms: int) -> AppendResult:
        """Appends a batch that the broker made for itself: without sequence numbers, so none are compared.

        Raises:
            BrokerResponseError: what ``check_size`` or ``ProducerStates.check_epoch`` refuses, or
                KafkaStorageError.
            IllegalStateError: the log is closed.
        """
        if self.state is not LogState.OPEN:
            self._refuse("append")
        header = parse_header(batch)
        check_size(header.size_bytes, self.settings)
        self.producers.check_epoch(header.producer_id, header.producer_epoch)
        appended = self._write(batch, header, now_ms, None)
        if header.producer_id >= 0:
            self.producers.record(header, appended.base_offset, now_ms)
        return appended

    def append_marker(
        self, marker: TransactionMarker, *, now_ms: int, leader_epoch: int | None = None
    ) -> AppendResult:
        """Ends a producer's transaction in this partition; a marker that ends nothing takes an offset, too.

        Args:
            marker: what the transaction's coordinator decided.
            now_ms: wall clock, milliseconds since the epoch; the marker's timestamp.
            leader_epoch: as for ``append_as_leader``.

        Raises:
            BrokerResponseError: what ``ProducerStates.check_marker`` refuses, or KafkaStorageError.
            IllegalStateError: the log is closed.
        """
        if self.state is not LogState.OPEN:
            self._refuse("append")
        self.producers.check_marker(marker)
        batch: Buffer = marker.encoded(now_ms)
        header = parse_header(batch)
        if self.settings.uses_log_append_time:
            batch, header = _stamp(batch, header, now_ms)
        appended = self._write(batch, header, now_ms, leader_epoch)
        ended = self.producers.end_transaction(marker, appended.base_offset, now_ms, now_ms)
        if ended is not None:
            self._note_end(ended)
        return appended

    def append_as_follower(self, batches: memoryview, *, now_ms: int) -> int:
        """Appends batches as the leader of the partition has them, with their offsets and leader epochs.

        Nothing of a producer is checked: the leader has done so. Each batch is appended whole or not at all;
        an error leaves those before it in the log.

        Args:
            batches: one after the other; one that is cut short ends them.
            now_ms: wall clock, milliseconds since the epoch.

        Returns:
            How many bytes were appended.

        Raises:
            CorruptMessageError: a batch is damaged, or its offsets are not behind those of the log.
            KafkaStorageError: the disk does not take one.
            IllegalStateError: the log is closed.
        """
        if self.state is not LogState.OPEN:
            self._refuse("append")
        size_bytes = 0
        for position, header in iter_stored_headers(batches):
            if not stored_crc_ok(batches, position, header) or header.base_offset < self.log_end_offset:
                raise CorruptMessageError(
                    f"{self.topic_partition} ends at {self.log_end_offset}, its leader sent a batch for "
                    f"{header.base_offset} that is damaged or out of order"
                )
            batch = batches[position : position + header.size_bytes]
            self._write_as_is(batch, header, now_ms)
            size_bytes += header.size_bytes
        return size_bytes

    def _write_as_is(self, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
        self._epochs.assign(header.partition_leader_epoch, header.base_offset)
        active = self._segments.active
        if active.must_roll(header.size_bytes, header.last_offset, header.max_timestamp, now_ms):
            self.roll(now_ms)
            active = self._segments.active
        active.append((batch,), header.last_offset, header.max_timestamp)
        self.log_end_offset = header.next_offset
        ended = replay_batch(self.producers, header, lambda: batch, now_ms)
        if ended is not None:
            self._note_end(ended)

    def _note_end(self, ended: CompletedTransaction) -> None:
        """Remembers a transaction whose marker was appended just now."""
        if self.replication is not None and ended.last_offset >= self.high_watermark:
            self._undecided.append((ended.first_offset, ended.last_offset))
        if ended.is_aborted:
            index = self._segments.active.txn_index
            if index.file.size_bytes is None:
                self.flusher.add_name()
            index.append(AbortedTransaction(*ended[:4]))

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """What is appended from now on is of this leader epoch; one that is not newer changes nothing."""
        self._epochs.begin(leader_epoch, self.log_end_offset)

    def _write(
        self, batch: Buffer, header: BatchHeader, now_ms: int, leader_epoch: int | None
    ) -> AppendResult:
        epoch = max(self._epochs.latest, 0) if leader_epoch is None else leader_epoch
        base_offset = self.log_end_offset
        if epoch > self._epochs.written:
            self._epochs.assign(epoch, base_offset)
        last_offset = base_offset + header.last_offset_delta
        active = self._segments.active
        if active.must_roll(len(batch), last_offset, header.max_timestamp, now_ms):
            self.roll(now_ms)
            active = self._segments.active
        assigned = _ASSIGNED.pack(base_offset, header.batch_length, epoch)
        unchanged = memoryview(batch)[_ASSIGNED.size :]
        active.append((assigned, unchanged), last_offset, header.max_timestamp)
        self.log_end_offset = last_offset + 1
        if self.replication is None:
            self.high_watermark = self.log_end_offset
            if self.moved_high_watermarks is not None:
                self.moved_high_watermarks[self] = None
        else:
            self.replication.advance()
        appended_ms = now_ms if self.settings.uses_log_append_time else NO_TIMESTAMP
        return AppendResult(base_offset, last_offset, appended_ms, self.log_start_offset, False)

    def _duplicate(self, earlier: RememberedBatch) -> AppendResult:
        return AppendResult(
            earlier.first_offset, earlier.last_offset, earlier.timestamp_ms, self.log_start_offset, True
        )

    def roll(self, now_ms: int) -> None:
        """Closes the active segment and begins one at the end of the log; an empty one stays.

        The closed segment gets its final time entry, the producers a snapshot; ``sync`` flushes it, or this
        call, where segments fill faster than the housekeeping comes round.

        Raises:
            KafkaStorageError: the new segment could not be made; the log goes on with the old one. Or the
                flush failed, as in ``flush``.
        """
        self.check_open("roll")
        if self._segments.active.size_bytes:
            self._files.roll(self.producers, now_ms)

    # --- flushing -------------------------------------------------------------------------------------------

    @property
    def recovery_point(self) -> int:
        """Everything below is on stable storage."""
        return self.flusher.recovery_point

    @property
    def needs_flush(self) -> bool:
        """Whether a closed segment waits to be brought to stable storage."""
        return self.flusher.needs_flush

    @property
    def is_synced(self) -> bool:
        """Whether everything in the log is on stable storage."""
        return self.flusher.recovery_point >= self.log_end_offset

    @property
    def must_flush(self) -> bool:
        """Whether ``flush.messages`` says that the last append is not to be answered before a flush."""
        return self.log_end_offset - self.flusher.recovery_point >= self.settings.flush_messages

    def flush(self) -> None:
        """As ``LogFlusher.flush``."""
        self.flusher.flush()

    async def sync(self, wall_ms: int | None = None) -> None:
        """As ``LogFlusher.sync``."""
        await self.flusher.sync(wall_ms)

    async def wait_for_sync(self) -> None:
        """As ``LogFlusher.wait_for_sync``."""
        await self.flusher.wait_for_sync()

    def fail(self) -> None:
        """Takes nothing more, and says so: what the disk has is unknown."""
        self.state = LogState.FAILED
        if self.replication is not None:
            self.replication.log_failed()

    # --- the high watermark ---------------------------------------------------------------------------------

    @property
    def high_watermark_checkpoint(self) -> int:
        """What a checkpoint must say: as before, while nobody has said whether the log is replicated."""
        known, recovered = self.high_watermark, self._recovered_high_watermark
        return known if recovered is None else min(known, recovered)

    def end_replication(self) -> None:
        """There is no other replica, or none any more: whatever is in the log can be read."""
        self.replication = None
        self._recovered_high_watermark = None
        self._undecided.clear()
        self.high_watermark = self.log_end_offset
        self._note_move()

    def begin_replication(self, replication: Replication) -> None:
        """There are other replicas: the high watermark is as checkpointed, and moves when it is told to.

        Raises:
            KafkaStorageError: what is above it cannot be read.
        """
        self.replication = replication
        recovered, self._recovered_high_watermark = self._recovered_high_watermark, None
        self._note_move()
        if recovered is None or recovered >= self.log_end_offset:
            return
        self.high_watermark = max(recovered, self.log_start_offset)
        # Markers above it may be lost with another leader, so what they end is not decided yet.
        states = self._files.producers_at(self.high_watermark)
        unstable = states.first_unstable_offset
        if unstable is not None:
            self._undecided.append((unstable, self.log_end_offset - 1))

    def advance_high_watermark(self, offset: int) -> bool:
        """Moves it up to ``offset``, or to the end of the log; never back. Whether it moved."""
        offset = min(offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self._note_move()
        if self._undecided:
            self._undecided = [each for each in self._undecided if each[1] >= offset]
        return True

    def _note_move(self) -> None:
        if self.moved_high_watermarks is not None:
            self.moved_high_watermarks[self] = None

    # --- the start of the log -------------------------------------------------------------------------------

    @property
    def log_start_checkpoint(self) -> int | None:
        """What a checkpoint must say of the log's start; None where the first segment's name says it.

        Never beyond what is on stable storage: after a power cut the log would end before its own start. What
        a checkpoint said when the log was opened was, even if the recovery point does not tell so.
        """
        start = min(self.log_start_offset, max(self.recovery_point, self._checkpointed_start))
        is_said = start <= self._segments.all[0].base_offset and not self._files.has_undurable_renames
        return None if is_said else start

    def advance_log_start(self, offset: int) -> int:
        """Makes everything below ``offset`` unreadable (DeleteRecords); an offset below the start is fine.

        Whole segments below go with the next ``delete_old_segments``. Returns where the log starts now.

        Raises:
            OffsetOutOfRangeError: ``offset`` is above the high watermark, or negative.
            KafkaStorageError: the log is read-only.
        """
        self.check_open("deletion of records")
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRangeError(
                f"{self.topic_partition} cannot start at {offset}: its high watermark is "
                f"{self.high_watermark}"
            )
        if offset > self.log_start_offset:
            self._epochs.cut_start(offset)
            self.log_start_offset = offset
        return self.log_start_offset

    def delete_old_segments(self, *, wall_ms: int, now_ms: float) -> int:
        """Takes segments away that ``retention.py`` says have to go; returns how many.

        Their files are renamed, and unlinked after ``file.delete.delay.ms`` by ``unlink_deleted``. An active
        segment that has to go is closed first.

        Args:
            wall_ms: wall clock, milliseconds since the epoch.
            now_ms: the clock that the delay is counted on.

        Raises:
            KafkaStorageError: the disk refused a step; what is out of the log stays out.
        """
        if self.state is not LogState.OPEN:
            return 0
        self.swapper.finish()
        about = LogFacts(self.settings, self.log_start_offset, self.high_watermark, self.size_bytes, wall_ms)
        reasons = reasons_to_go(self._segments.all, self.log_end_offset, self.largest_timestamp, about)
        if reasons and len(reasons) == len(self._segments.all) and not self._try_to_roll(wall_ms):
            del reasons[-1]
        if not reasons:
            return 0
        first = self._segments.all[len(reasons)]
        self._files.make_durable_from(first)
        for segment, reason in zip(self._segments.all, reasons, strict=False):
            _logger.info("removing %s: %s", segment, reason)
        self.advance_log_start(max(first.base_offset, self.log_start_offset))
        self._files.remove_first(len(reasons), now_ms + self.settings.file_delete_delay_ms)
        return len(reasons)

    def _try_to_roll(self, now_ms: int) -> bool:
        """On a full disk the active segment cannot be closed, but those before it can still go."""
        try:
            self.roll(now_ms)
        except KafkaStorageError as error:
            _logger.warning("%s: %s; the active segment stays", self.directory, error.message)
            return False
        return True

    @property
    def next_unlink_ms(self) -> float:
        """When ``unlink_deleted`` has something to do, on the clock of ``delete_old_segments``."""
        return self._files.next_unlink_ms

    def unlink_deleted(self, now_ms: float) -> None:
        """Unlinks the files of removed segments whose delay is over, and finishes swaps left unfinished.

        Raises:
            KafkaStorageError: the disk refuses; a later call tries again, and so does the next start.
        """
        if not self.is_closed:  # its directory may be another topic's by now
            self._files.unlink_due(now_ms)

    # --- truncation -----------------------------------------------------------------------------------------

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        """Drops the batch that holds ``offset`` and all behind it; below the first segment, all there is.

        Segments go for good before the one in front is cut, so a crash leaves a log without a gap. The
        caller sees to it that no sync is under way, and checkpoints the recovery point afterwards.

        Raises:
            KafkaStorageError: the disk refuses; what is left is a log that may end later than was asked.
            IllegalStateError: the log is closed.
        """
        self.check_open("truncation")
        if offset >= self.log_end_offset:
            self._epochs.cut(self.log_start_offset, self.log_end_offset)  # one that wrote nothing may differ
            return
        if offset < self._segments.all[0].base_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return
        _logger.info("%s: truncated from %d to %d", self.directory, self.log_end_offset, offset)
        self._end_at(self._files.cut_at(offset))
        self.producers = self._files.producers_at(self.log_end_offset)
        self.producers.restart_clocks(now_ms)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Drops everything; the log is empty then, and its next record gets ``offset``.

        Raises:
            As ``truncate_to``.
        """
        self.check_open("truncation")
        _logger.info("%s: started anew at %d, it ended at %d", self.directory, offset, self.log_end_offset)
        self._files.truncate_fully(offset, now_ms)
        self.log_start_offset = offset
        self.high_watermark = offset
        self._end_at(offset)
        self.producers = ProducerStates()

    def _end_at(self, end: int) -> None:
        self.log_end_offset = end
        self.log_start_offset = min(self.log_start_offset, end)
        self._checkpointed_start = min(self._checkpointed_start, end)
        self.high_watermark = min(self.high_watermark, end)
        self._note_move()
        self._undecided = [each for each in self._undecided if each[1] < end]
        self._files.truncate_state(self.log_start_offset, end)

    # --- elsewhere, and the end -----------------------------------------------------------------------------

    def move_to_directory(self, directory: str, loaded: LoadedLog) -> None:
        """Goes on in another directory, whose files hold what this log's do; the old ones are let go of.

        No sync may be under way, and no cleaning.
        """
        old = self._segments
        self._use(directory, loaded, self.log_end_offset, self.flusher.flushed_ms, names_are_synced=False)
        self._note_move()  # the high watermark is to be kept in that directory now
        old.release_all()

    def close(self) -> None:
        """Flushes and closes: final time entry, producer snapshot. A second call does nothing.

        Raises:
            KafkaStorageError: the log is closed, but not cleanly; the next start must recover it.
        """
        if self.state is LogState.CLOSED:
            return
        self.replication = None  # whatever fails now, others lead already
        try:
            if self.state is LogState.FAILED:
                raise KafkaStorageError(f"{self.directory} failed earlier and is closed as it is")
            self._files.close(self.producers)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Closes the files as they are, as a crash would, for a log that is to be deleted."""
        self.state = LogState.CLOSED
        self._segments.release_all()


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


def _stamp(batch: Buffer, header: BatchHeader, now_ms: int) -> tuple[Buffer, BatchHeader]:
    """A copy whose records all read as of ``now_ms``."""
    stamped = bytearray(batch)
    stamp_log_append_time(stamped, 0, now_ms)
    return stamped, header._replace(attributes=header.attributes | LOG_APPEND_TIME_BIT, max_timestamp=now_ms)
