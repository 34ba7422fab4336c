"""The log of one partition: batches in segments, appended to by its leader, read by offset or timestamp.

All methods run on one thread, the broker's loop; only ``sync`` leaves it while the disk works. Reads return
``FileSlice``s, which stay valid whatever happens to the log. ``flushing.py`` knows what is not on stable
storage yet, ``log_files.py`` creates, cuts and removes files.
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
from splashdam.storage.segments.indexes import MAX_RELATIVE_OFFSET, AbortedTransaction
from splashdam.storage.segments.segment import LogSegment
from splashdam.storage.settings import LogSettings
from splashdam.storage.timestamp_lookup import FoundRecord, Search, TimestampOffset, find_timestamp
from splashdam.storage.transaction_marker import TransactionMarker

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
"""Special timestamps of ListOffsets; see ``Log.search_timestamp``."""

NO_TIMESTAMP = -1
_NOTHING = BytesSlice(b"")
_ASSIGNED = struct.Struct(">qii")  # baseOffset, batchLength, partitionLeaderEpoch: what a leader assigns
_NEW = tuple.__new__  # a frame less than the class of a named tuple, for every batch
_logger = logging.getLogger(__name__)


class LogState(Enum):
    """Life of a log: open → failed → closed, or open → closed.

    An open log allows everything, a failed one reads and ``close``, a closed one only a second ``close``. A
    truncation takes an open log through ``HALF_TRUNCATED``, and leaves it there if the disk refuses a step.
    """

    OPEN = "open"
    HALF_TRUNCATED = "half truncated"  # it may know epochs and producers that it has no records of
    FAILED = "failed"  # a sync failed: what is on the disk is unknown, so nothing more is acknowledged
    CLOSED = "closed"


class AppendResult(NamedTuple):
    """Where a batch was written.

    Attributes:
        base_offset: offset of its first record.
        last_offset: offset of its last record.
        log_append_time_ms: when it was written; -1 if the topic uses CreateTime. For a duplicate, as in
            Kafka, always the largest timestamp of its records.
        log_start_offset: first offset of the log.
        duplicate: nothing was written, because the log has this batch of the producer at these offsets.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


class Log:
    """The log of one partition; created by ``Log.open``.

    Attributes:
        topic_partition: the partition.
        topic_id: 16 bytes.
        directory: absolute path of the partition's directory.
        settings: the options of its topic.
        state: open, failed or closed.
        producers: the state of idempotent and transactional producers.
        log_start_offset: the first offset that may be read.
        log_end_offset: the offset of the next record.
        high_watermark: consumers read below it; without other replicas the end of the log.
        replication: the leader's view of the other replicas; None if there are none.
        moved_high_watermarks: the log adds itself when its high watermark has moved; the manager's set.
        flusher: brings the log to stable storage.
        swapper: replaces segments by their compacted copies.
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
        # While it is half truncated: repeats all steps of the truncation; called with the wall clock.
        self._truncation: Callable[[int], None] | None = None
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
        """Open the log in ``directory``, which exists; repair what a crash has left.

        Args:
            files: the file system.
            directory: absolute path of the partition's directory; an empty one becomes an empty log.
            topic_partition: the partition.
            settings: the options of its topic.
            topic_id: 16 bytes.
            now_ms: wall clock, milliseconds since the epoch.
            clean_shutdown: the last broker closed the log in order, so only its tail is checked.
            recovery_point: everything below was flushed; used after a crash.
            log_start_offset: the checkpointed one; 0 if there is none.
            high_watermark: the checkpointed one, or None; used if the log turns out to be replicated.
            on_work: called when a segment has to be flushed, or removed files have to be unlinked.

        Raises:
            KafkaStorageError: the files cannot be read or repaired.
        """
        loader = LogLoader(files, directory, settings, log_start_offset=log_start_offset, now_ms=now_ms)
        loaded = loader.load(clean_shutdown=clean_shutdown, recovery_point=recovery_point)
        # Producers expire by the broker's clock, which says nothing about the time in which the broker was
        # down.
        loaded.producers.restart_clocks(now_ms)
        end = loaded.log_end_offset
        return cls(
            files,
            directory,
            topic_partition,
            settings,
            loaded,
            topic_id=topic_id,
            # Recovery may have read the active segment from the page cache alone (``kill -9``). It counts as
            # flushed after the next flush only.
            recovery_point=end if clean_shutdown else min(recovery_point, end),
            now_ms=now_ms,
            on_work=on_work,
            recovered_high_watermark=high_watermark,
        )

    def reconfigure(self, settings: LogSettings) -> None:
        """Use other settings from now on, also for the active segment."""
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
        """Raise if the log is not open.

        Raises:
            KafkaStorageError: a sync has failed, so the log is read-only; or a truncation is not finished.
            IllegalStateError: the log is closed.
        """
        if self.state is not LogState.OPEN:
            self._refuse(call)

    def _refuse(self, call: str) -> None:
        """Raise the error for a call that the state does not allow."""
        if self.state is LogState.HALF_TRUNCATED:
            raise KafkaStorageError(
                f"{self.directory} is half truncated, because the disk refused a step; no {call}"
            )
        if self.state is LogState.FAILED:
            raise KafkaStorageError(
                f"{self.directory} is read-only, because a sync to disk failed; no {call}"
            )
        raise IllegalStateError(f"no {call} on the log of {self.topic_partition}: it is {self.state.value}")

    # --- what it is -----------------------------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        """The current leader's epoch; without other replicas the newest epoch in the log, or 0."""
        return max(self._epochs.latest, 0) if self.replication is None else self.replication.leader_epoch

    @property
    def leader_epoch_start(self) -> int:
        """The log end offset when the newest epoch began; 0 before the first epoch."""
        return self._epochs.entries[-1][1] if self._epochs.entries else 0

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Return where ``epoch``, or the largest known epoch below it, ends; (-1, -1) if that is unknown."""
        return self._epochs.end_of(epoch, self.log_end_offset)

    @property
    def last_epoch(self) -> int:
        """The newest leader epoch in the log; -1 before the first epoch."""
        return self._epochs.latest

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed consumers stop: at the first open transaction, or at the high watermark.

        For them a transaction is open until the high watermark has passed its marker: up to then another
        replica that becomes leader may lack the marker.
        """
        unstable = self.producers.first_unstable_offset
        if self._undecided:
            first = min(first for first, _ in self._undecided)
            unstable = first if unstable is None else min(first, unstable)
        if unstable is None:
            return self.high_watermark
        # DeleteRecords may have removed the first records of a transaction that is still open.
        return min(max(unstable, self.log_start_offset), self.high_watermark)

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """The segments, the active one last."""
        return self._segments.all

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches on disk, including those below the log start offset in the first segment."""
        return sum(segment.size_bytes for segment in self._segments.all)

    def largest_timestamp(self, segment: LogSegment) -> int:
        """Return the largest timestamp in a segment, or the file's modification time if records have none.

        Raises:
            KafkaStorageError: it cannot be read.
        """
        self._look_at(segment)
        return segment.largest_timestamp

    def first_timestamp(self, segment: LogSegment) -> int:
        """Return the timestamp of a segment's first batch; -1 if the segment is empty.

        Raises:
            KafkaStorageError: it cannot be read.
            CorruptMessageError: the batch is damaged.
        """
        self._look_at(segment)
        head = next(segment.heads_from(segment.base_offset), None)
        return NO_TIMESTAMP if head is None else head.max_timestamp

    def _look_at(self, segment: LogSegment) -> None:
        if segment is not self._segments.active:
            self._segments.touch(segment)  # reading a closed segment opens its files

    # --- reading --------------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, min_one_batch: bool = True, up_to: int | None = None
    ) -> FileSlice:
        """Read batches of one segment, from the batch that holds ``offset`` on.

        The slice begins with a whole batch, so it may hold records below ``offset``. ``max_bytes`` may cut
        its last batch, as in Kafka; clients skip that.

        Args:
            offset: the first record wanted.
            max_bytes: the largest number of bytes to return.
            min_one_batch: return the first batch even if it is larger than ``max_bytes``.
            up_to: stop at this offset; by default at the high watermark.

        Returns:
            A slice, which the caller closes; it is empty if there is nothing to read below ``up_to``.

        Raises:
            OffsetOutOfRangeError: ``offset`` is below the log's start or above its end.
            KafkaStorageError: the log cannot be read.
        """
        if self.state is LogState.CLOSED:
            self._refuse("read")
        # Compared with the log end, not with the limit: what lies between them will be readable soon. At
        # OFFSET_OUT_OF_RANGE a consumer would start again at ``auto.offset.reset``.
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
            # None if compaction has removed the end of this segment; then the next one goes on.
            if head is not None:
                available = self._position_of(limit, segment) - head.position
                size = min(max_bytes, available)
                # Nothing beyond the limit, not even for ``min_one_batch``: a batch that reaches over it is
                # not replicated yet, or its transaction is open.
                if size < head.size_bytes:
                    size = head.size_bytes if min_one_batch and available > 0 else 0
                return segment.log.slice(head.position, size) if size else _NOTHING
        return _NOTHING

    def batches(self) -> Iterator[tuple[BatchHeader, Buffer]]:
        """Yield every batch of the log, control batches included, from the oldest on.

        Raises:
            CorruptMessageError: a header is damaged.
            KafkaStorageError: the log cannot be read.
        """
        for segment in self._segments.walk_from(self.log_start_offset):
            for position, header in iter_headers(segment.log, 0):
                yield header, segment.log.read(position, header.size_bytes)

    def _position_of(self, limit: int, segment: LogSegment) -> int:
        """Return the position in a segment at which the batches from offset ``limit`` on begin."""
        if limit >= self.log_end_offset:
            return segment.size_bytes
        head = segment.find(limit)
        return segment.size_bytes if head is None else head.position

    def offset_for_timestamp(self, timestamp_ms: int, *, up_to: int | None = None) -> TimestampOffset:
        """Run ``search_timestamp`` to its end, however long that takes."""
        search = self.search_timestamp(timestamp_ms, up_to=up_to)
        found: FoundRecord | None = None
        try:
            while True:
                due = search.send(found)
                found = None if isinstance(due, int) else due.do(MAX_DECOMPRESSED_BYTES)
        except StopIteration as done:
            return cast("TimestampOffset", done.value)

    def search_timestamp(self, timestamp_ms: int, *, up_to: int | None = None) -> Search[TimestampOffset]:
        """Find the first offset of a record that is at least as late as ``timestamp_ms``.

        ``LATEST`` (-1) gives ``up_to``, ``EARLIEST`` (-2) the log start offset, ``MAX_TIMESTAMP`` (-3) the
        first record with the largest timestamp. Offset and timestamp are -1 if no record below ``up_to``, by
        default the high watermark, matches. The search is a generator; see ``timestamp_lookup.py``.

        Raises:
            KafkaStorageError: the log cannot be read, or has been closed meanwhile.
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
        """Return an upper bound of the offsets in the ``size_bytes`` that ``read`` returned for ``offset``.

        The bound is as close as the offset index allows, so that a fetch lists the aborted transactions in
        its own bytes only.

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

    def may_have_aborted(self, offset: int) -> bool:
        """Return false if no aborted transaction has records from ``offset`` on; true does not say there is.

        Raises:
            KafkaStorageError: an index cannot be read.
        """
        return self._segments.may_have_aborted(offset)

    def aborted_transactions(self, offset: int, up_to: int) -> list[AbortedTransaction]:
        """Return aborted transactions with records in [``offset``, ``up_to``), in the order of their markers.

        Raises:
            KafkaStorageError: an index cannot be read.
        """
        return self._segments.aborted_transactions(offset, up_to)

    def _check_still_open(self) -> None:
        if self.state is LogState.CLOSED:
            raise KafkaStorageError(f"the log of {self.topic_partition} was closed while it was read")

    # --- appending ------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        batch: Buffer,
        *,
        now_ms: int,
        leader_epoch: int | None = None,
        header: BatchHeader | None = None,
    ) -> AppendResult:
        """Append one batch of a producer: all of it or, on any error, nothing.

        Base offset and leader epoch are replaced on the way to the disk. ``batch`` itself is not changed, and
        only copied if its checksum changes: with LogAppendTime, and if the header has a wrong maximum
        timestamp.

        Args:
            batch: exactly one batch of format 2.
            now_ms: wall clock, milliseconds since the epoch.
            leader_epoch: the leader's epoch; by default the newest epoch of this log.
            header: the header that ``check_batch`` returned with ``batch``; the batch is not checked again.

        Raises:
            BrokerResponseError: ``check_batch`` or ``ProducerStates.check`` refuses the batch, or the disk
                does (KafkaStorageError).
            IllegalStateError: the log is closed.
        """
        if self.state is not LogState.OPEN:
            self._refuse("append")
        if header is None:
            batch, header = check_batch(batch, self.settings, now_ms)
        # Before the roll in `_write`: a repeated batch writes nothing, so it must not close a segment either.
        if header.producer_id >= 0:
            # Before the check of sequences, which would answer batches behind a refused one with 45; after 56
            # a producer may send them all again (docs/decisions/storage.md, "A full disk").
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
            # Only now: a batch that the disk refused must not look like a duplicate when it is retried.
            self.producers.record(header, appended.base_offset, now_ms)
            if self._refused:
                self._refused.pop(header.producer_id, None)
        return appended

    def append_as_coordinator(self, batch: Buffer, *, now_ms: int) -> AppendResult:
        """Append a batch of a coordinator. It has no sequence number, so only its size and epoch are checked.

        Raises:
            BrokerResponseError: ``check_size`` or ``ProducerStates.check_epoch`` refuses the batch, or the
                disk does (KafkaStorageError).
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
        """Append a transaction marker. One that ends no transaction is written and takes an offset, too.

        Args:
            marker: the decision of the transaction coordinator.
            now_ms: wall clock, milliseconds since the epoch; the marker's timestamp.
            leader_epoch: as for ``append_as_leader``.

        Raises:
            BrokerResponseError: ``ProducerStates.check_marker`` refuses the marker, or the disk does
                (KafkaStorageError).
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
        """Append batches that were fetched from the leader, with their offsets and leader epochs.

        Producer ids and sequences are not checked: the leader has done so. Each batch is appended whole or
        not at all; after an error the batches before it are in the log.

        Args:
            batches: whole batches; a last one that is cut short is ignored.
            now_ms: wall clock, milliseconds since the epoch.

        Returns:
            The number of bytes appended.

        Raises:
            CorruptMessageError: a batch is damaged, or begins before the end of the log.
            KafkaStorageError: the disk refuses a batch.
            IllegalStateError: the log is closed.
        """
        if self.state is not LogState.OPEN:
            self._refuse("append")
        size_bytes = 0
        for position, header in iter_stored_headers(batches):
            # A gap is legal: compaction on the leader makes them.
            if not stored_crc_ok(batches, position, header) or header.base_offset < self.log_end_offset:
                raise CorruptMessageError(
                    f"{self.topic_partition} ends at offset {self.log_end_offset}, its leader sent one at "
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
            if header.last_offset - self.log_end_offset > MAX_RELATIVE_OFFSET:
                # Compaction has removed more offsets than a segment may have: go on behind them, as in Kafka,
                # and close even an empty segment.
                self.log_end_offset = header.base_offset
            self._files.roll(self.producers, now_ms)
            active = self._segments.active
        active.append((batch,), header.base_offset, header.last_offset, header.max_timestamp)
        self.log_end_offset = header.next_offset
        ended = replay_batch(self.producers, header, lambda: batch, now_ms)
        if ended is not None:
            self._note_end(ended)

    def _note_end(self, ended: CompletedTransaction) -> None:
        """Note a transaction whose marker has just been appended."""
        if self.replication is not None and ended.last_offset >= self.high_watermark:
            self._undecided.append((ended.first_offset, ended.last_offset))
        if ended.is_aborted:
            index = self._segments.active.txn_index
            # Most segments have no .txnindex: the entry below creates the file, and the next flush has to
            # sync its name.
            if index.file.size_bytes is None:
                self.flusher.add_name()
            index.append(AbortedTransaction(*ended[:4]))

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """Begin a leader epoch at the end of the log if it is newer than the last one."""
        self._epochs.begin(leader_epoch, self.log_end_offset)

    def _write(
        self, batch: Buffer, header: BatchHeader, now_ms: int, leader_epoch: int | None
    ) -> AppendResult:
        epoch = max(self._epochs.latest, 0) if leader_epoch is None else leader_epoch
        base_offset = self.log_end_offset
        # Before the append: an error after it would leave a record in the log that its producer believes
        # lost.
        if epoch > self._epochs.written:
            self._epochs.assign(epoch, base_offset)
        last_offset = base_offset + header.last_offset_delta
        active = self._segments.active
        if active.must_roll(len(batch), last_offset, header.max_timestamp, now_ms):
            self.roll(now_ms)
            active = self._segments.active
        assigned = _ASSIGNED.pack(base_offset, header.batch_length, epoch)
        # The checksum covers what follows these fields, so they are replaced without a copy and without a new
        # checksum.
        unchanged = memoryview(batch)[_ASSIGNED.size :]
        active.append((assigned, unchanged), base_offset, last_offset, header.max_timestamp)
        self.log_end_offset = last_offset + 1
        if self.replication is None:
            # As ``advance_high_watermark``, without a call for every append.
            self.high_watermark = self.log_end_offset
            if self.moved_high_watermarks is not None:
                self.moved_high_watermarks[self] = None
        else:
            self.replication.advance()
        appended_ms = now_ms if self.settings.uses_log_append_time else NO_TIMESTAMP
        return _NEW(AppendResult, (base_offset, last_offset, appended_ms, self.log_start_offset, False))

    def _duplicate(self, earlier: RememberedBatch) -> AppendResult:
        return AppendResult(
            earlier.first_offset, earlier.last_offset, earlier.timestamp_ms, self.log_start_offset, True
        )

    def roll(self, now_ms: int) -> None:
        """Close the active segment, unless it is empty, and begin a new one at the end of the log.

        This writes the final time entry of the closed segment and a producer snapshot. The housekeeping
        flushes the segment later; this call does it if too many segments wait for that.

        Raises:
            KafkaStorageError: the new segment could not be created, and the log goes on with the old one; or
                the flush failed, as in ``flush``.
        """
        self.check_open("roll")
        # The successor of an empty segment would have its name.
        if self._segments.active.size_bytes:
            self._files.roll(self.producers, now_ms)

    # --- flushing -------------------------------------------------------------------------------------------

    @property
    def recovery_point(self) -> int:
        """Every offset below it is on stable storage."""
        return self.flusher.recovery_point

    @property
    def needs_flush(self) -> bool:
        """Whether a closed segment waits for its flush."""
        return self.flusher.needs_flush

    @property
    def is_synced(self) -> bool:
        """Whether everything in the log is on stable storage."""
        return self.flusher.recovery_point >= self.log_end_offset

    @property
    def truncations(self) -> int:
        """How often the log was truncated since it was opened."""
        return self.flusher.truncations

    @property
    def must_flush(self) -> bool:
        """Whether ``flush.messages`` demands a flush before the last append is acknowledged."""
        return self.log_end_offset - self.flusher.recovery_point >= self.settings.flush_messages

    def flush(self) -> None:
        """Flush, blocking; see ``LogFlusher.flush``."""
        self.flusher.flush()

    async def sync(self, wall_ms: int | None = None) -> None:
        """Flush beside the loop; see ``LogFlusher.sync``."""
        await self.flusher.sync(wall_ms)

    async def wait_for_sync(self) -> None:
        """Wait until no sync is under way; see ``LogFlusher.wait_for_sync``."""
        await self.flusher.wait_for_sync()

    def fail(self) -> None:
        """Make the log read-only: a sync failed, so what is on the disk is unknown."""
        self.state = LogState.FAILED
        if self.replication is not None:
            self.replication.log_failed()

    # --- the high watermark ---------------------------------------------------------------------------------

    @property
    def high_watermark_checkpoint(self) -> int:
        """The high watermark to checkpoint.

        Until it is known whether the log is replicated, not above the recovered one: otherwise a restart
        would forget which records another replica may lack.
        """
        known, recovered = self.high_watermark, self._recovered_high_watermark
        return known if recovered is None else min(known, recovered)

    def end_replication(self) -> None:
        """There is no other replica, or none any more: everything in the log can be read."""
        self.replication = None
        self._recovered_high_watermark = None
        self._undecided.clear()
        self.high_watermark = self.log_end_offset
        self._note_move()

    def begin_replication(self, replication: Replication) -> None:
        """There are other replicas: start from the checkpointed high watermark.

        Raises:
            KafkaStorageError: the log above the high watermark cannot be read.
        """
        self.replication = replication
        recovered, self._recovered_high_watermark = self._recovered_high_watermark, None
        self._note_move()
        if recovered is None or recovered >= self.log_end_offset:
            return
        self.high_watermark = max(recovered, self.log_start_offset)
        # Another leader may lack the markers above it, so the transactions that they end are not decided yet.
        states = self._files.producers_at(self.high_watermark)
        unstable = states.first_unstable_offset
        if unstable is not None:
            self._undecided.append((unstable, self.log_end_offset - 1))

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark to ``offset``, at most to the log end; return whether it moved."""
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
        """The log start offset to checkpoint; None if the first segment's name says it."""
        # Never beyond the recovery point: after a power cut the log would end before its own start, and
        # recovery would ignore that start. The start that was checkpointed when the log was opened is safe
        # even above it, and forgetting that would bring deleted records back at a second crash.
        start = min(self.log_start_offset, max(self.recovery_point, self._checkpointed_start))
        follows_from_names = (
            start <= self._segments.all[0].base_offset and not self._files.has_undurable_renames
        )
        return None if follows_from_names else start

    def advance_log_start(self, offset: int) -> int:
        """Make everything below ``offset`` unreadable (DeleteRecords); return the log start offset.

        An offset below the log start changes nothing. The next ``delete_old_segments`` removes segments that
        lie below the log start.

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

    def reasons_to_go(self, wall_ms: int) -> list[str]:
        """Return why each of the oldest segments has to be removed at this time, as ``retention.py`` decides.

        Raises:
            KafkaStorageError: a segment cannot be read.
        """
        facts = LogFacts(self.settings, self.log_start_offset, self.high_watermark, self.size_bytes, wall_ms)
        return reasons_to_go(self._segments.all, self.log_end_offset, self.largest_timestamp, facts)

    def delete_old_segments(self, *, wall_ms: int, now_ms: float) -> int:
        """Remove the segments that ``retention.py`` names; return how many.

        Their files are renamed, and ``unlink_deleted`` unlinks them after ``file.delete.delay.ms``. If the
        active segment has to go, it is closed first.

        Args:
            wall_ms: wall clock, milliseconds since the epoch.
            now_ms: monotonic clock, for the delay.

        Raises:
            KafkaStorageError: the disk refused a step; segments that have left the log stay out of it.
        """
        if self.state is not LogState.OPEN:
            return 0
        # Before that, the first source of an unfinished swap still has its files. If its copy were removed
        # here, the next start would load them.
        self.swapper.finish()
        reasons = self.reasons_to_go(wall_ms)
        if reasons and len(reasons) == len(self._segments.all) and not self._try_to_roll(wall_ms):
            del reasons[-1]
        if not reasons:
            return 0
        first = self._segments.all[len(reasons)]
        # First: the batches from which the state of these producers could be rebuilt are about to go.
        self._files.make_durable_from(first)
        for segment, reason in zip(self._segments.all, reasons, strict=False):
            _logger.info("removing %s: %s", segment, reason)
        # Before the files: if the disk refuses a rename, the checkpointed start excludes what the next start
        # would find again.
        self.advance_log_start(max(first.base_offset, self.log_start_offset))
        self._files.remove_first(len(reasons), now_ms + self.settings.file_delete_delay_ms)
        return len(reasons)

    def _try_to_roll(self, now_ms: int) -> bool:
        """Roll if the disk allows it. On a full disk it may not, and the segments before can still go."""
        try:
            self.roll(now_ms)
        except KafkaStorageError as error:
            _logger.warning(
                "%s: %s; retention leaves the active segment in place", self.directory, error.message
            )
            return False
        return True

    @property
    def next_unlink_ms(self) -> float:
        """When ``unlink_deleted`` has something to do, by the monotonic clock; infinity for never."""
        return self._files.next_unlink_ms

    def unlink_deleted(self, now_ms: float) -> None:
        """Unlink the files of removed segments whose delay is over, and finish interrupted swaps.

        Raises:
            KafkaStorageError: the disk refuses; a later call tries again, and so does the next start.
        """
        if not self.is_closed:  # the directory of a closed log may belong to a new topic of the same name
            self._files.unlink_due(now_ms)

    # --- truncation -----------------------------------------------------------------------------------------

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        """Remove the batch that holds ``offset`` and all after it; all batches, if it is below the first.

        The caller makes sure that no sync is under way, and checkpoints the recovery point afterwards.

        Raises:
            KafkaStorageError: the disk refuses. The log is sound, but may end after ``offset``, and takes
                nothing before ``finish_truncation``.
            IllegalStateError: the log is closed.
        """
        self.finish_truncation(now_ms=now_ms)
        self.check_open("truncation")
        if offset >= self.log_end_offset:
            # An epoch that has no record yet may differ from the leader's.
            self._epochs.cut(self.log_start_offset, self.log_end_offset)
        elif offset < self._segments.all[0].base_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
        else:
            self._truncate(partial(self._cut_at, offset), now_ms)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Remove everything; the log is then empty and its next record gets ``offset``.

        Raises:
            Errors: as ``truncate_to``.
        """
        if self.state is not LogState.HALF_TRUNCATED:  # nothing is left of the truncation before
            self.check_open("truncation")
        self._truncate(partial(self._start_anew_at, offset), now_ms)

    def finish_truncation(self, *, now_ms: int) -> None:
        """Finish a truncation that the disk has interrupted, by repeating it; without one, do nothing.

        The broker calls this before it leads the log or fetches more into it: a half truncated log would take
        the retry of a batch that was cut off for a duplicate.

        Raises:
            KafkaStorageError: the disk still refuses.
        """
        if self.state is LogState.HALF_TRUNCATED:
            assert self._truncation is not None
            self._truncate(self._truncation, now_ms)

    def _truncate(self, truncation: Callable[[int], None], now_ms: int) -> None:
        # It stays so if the disk refuses a step: the log may already end where it should, and the rest is
        # still to be done.
        self.state, self._truncation = LogState.HALF_TRUNCATED, truncation
        truncation(now_ms)
        self._files.truncate_state(self.log_start_offset, self.log_end_offset)
        self.state, self._truncation = LogState.OPEN, None

    def _cut_at(self, offset: int, now_ms: int) -> None:
        _logger.info("%s: truncated from %d to %d", self.directory, self.log_end_offset, offset)
        self._files.cut_at(min(offset, self.log_end_offset), self._end_at)
        self.producers = self._files.producers_at(self.log_end_offset)
        self.producers.restart_clocks(now_ms)

    def _start_anew_at(self, offset: int, now_ms: int) -> None:
        _logger.info(
            "%s: truncated fully; it ended at offset %d and starts again at %d",
            self.directory,
            self.log_end_offset,
            offset,
        )
        self._files.truncate_fully(offset, now_ms, self._end_at)
        self.log_start_offset = offset
        self.high_watermark = offset
        self._end_at(offset)
        self.producers = ProducerStates()

    def _end_at(self, end: int) -> None:
        """End at an offset, in memory: the disk, which may refuse the rest of a truncation, comes last."""
        self.log_end_offset = end
        self.log_start_offset = min(self.log_start_offset, end)
        self._checkpointed_start = min(self._checkpointed_start, end)
        self.high_watermark = min(self.high_watermark, end)
        self._note_move()
        self._undecided = [each for each in self._undecided if each[1] < end]
        self.flusher.truncate(end)

    # --- elsewhere, and the end -----------------------------------------------------------------------------

    def move_to_directory(self, directory: str, loaded: LoadedLog) -> None:
        """Use the files in another directory, which hold the same batches, and close the old ones.

        No sync and no cleaning may be under way.
        """
        old = self._segments
        self._use(directory, loaded, self.log_end_offset, self.flusher.flushed_ms, names_are_synced=False)
        self._note_move()  # the other directory's checkpoint must have the high watermark
        old.release_all()

    def close(self) -> None:
        """Write the final time entry, flush, write a producer snapshot, close. A second call does nothing.

        Raises:
            KafkaStorageError: the log is closed, but not in order; the next start must recover it.
        """
        if self.state is LogState.CLOSED:
            return
        self.replication = None  # a failure below must not ask for another leader: there is one already
        try:
            if self.state is LogState.HALF_TRUNCATED:
                self._refuse("close in order")
            if self.state is LogState.FAILED:
                raise KafkaStorageError(
                    f"a sync of {self.directory} failed earlier, so it is closed as it is"
                )
            self._files.close(self.producers)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the files as they are, as a crash would; for a log whose directory goes or has failed."""
        self.state = LogState.CLOSED
        self._segments.release_all()


class Replication(Protocol):
    """What a log asks about its other replicas; implemented in ``embedded_broker/replication``."""

    @property
    def leader_epoch(self) -> int:
        """The partition's leader epoch, wherever the leader is."""
        ...

    def check_leading(self) -> None:
        """Raise NotLeaderOrFollowerError unless this broker leads the partition."""
        ...

    def check_enough_in_sync(self) -> None:
        """Raise NotEnoughReplicasError if there are too few in-sync replicas for an append with acks=all."""
        ...

    def advance(self) -> None:
        """Move the high watermark as far as possible after the log has grown."""
        ...

    @property
    def term(self) -> int:
        """Number that changes whenever another broker has led: what was appended before may be gone."""
        ...

    def log_failed(self) -> None:
        """The log has failed and is read-only: let another replica lead."""
        ...

    async def wait_replicated(self, offset: int, term: int) -> None:
        """Wait until everything below ``offset``, appended in this term, is on all in-sync replicas.

        Raises:
            NotLeaderOrFollowerError: another broker leads or has led; it may or may not have the records.
            NotEnoughReplicasAfterAppendError: they have it, but have become too few.
        """
        ...

    async def wait_deleted(self, offset: int) -> None:
        """Wait until no replica that may become leader has anything below ``offset``.

        Raises:
            NotLeaderOrFollowerError: another broker leads.
        """
        ...


def _stamp(batch: Buffer, header: BatchHeader, now_ms: int) -> tuple[Buffer, BatchHeader]:
    """Return a copy of the batch in which ``now_ms`` is the timestamp of all records (LogAppendTime)."""
    stamped = bytearray(batch)
    stamp_log_append_time(stamped, 0, now_ms)
    return stamped, header._replace(attributes=header.attributes | LOG_APPEND_TIME_BIT, max_timestamp=now_ms)
