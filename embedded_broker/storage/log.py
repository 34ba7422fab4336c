"""The log of one partition: batches in segments, appended to by its leader, read by offset or timestamp.

All methods belong to one thread (the broker's loop); ``sync`` alone leaves it while the disk works. Bytes
handed out are ``FileSlice``s, which outlive whatever happens to the log.
"""

from __future__ import annotations

import struct

from splashdam.embedded_broker.storage.append_checks import check_batch
from splashdam.embedded_broker.storage.append_result import AppendResult, LogState
from splashdam.embedded_broker.storage.files import BytesSlice, Files, FileSlice
from splashdam.embedded_broker.storage.loader import LoadedLog, LogLoader
from splashdam.embedded_broker.storage.log_flush import FlushRound, LogFlusher
from splashdam.embedded_broker.storage.producer_snapshot import SnapshotFiles
from splashdam.embedded_broker.storage.producer_state import RememberedBatch
from splashdam.embedded_broker.storage.segment import LogSegment
from splashdam.embedded_broker.storage.settings import LogSettings
from splashdam.embedded_broker.storage.timestamp_lookup import TimestampOffset, find_timestamp
from splashdam.embedded_broker.storage.txn_index import AbortedTransaction
from splashdam.model.broker_errors import KafkaStorageError, OffsetOutOfRangeError
from splashdam.model.errors import IllegalStateError
from splashdam.model.values import Buffer, TopicPartition
from splashdam.record.batch import LOG_APPEND_TIME_BIT, BatchHeader, stamp_log_append_time

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
"""What ``offset_for_timestamp`` takes for a timestamp and answers without comparing any."""

NO_TIMESTAMP = -1
_ASSIGNED = struct.Struct(">qii")  # baseOffset, batchLength, partitionLeaderEpoch: all that a leader changes
_NOTHING = BytesSlice(b"")


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
        high_watermark: readers see what is below; with a single replica, the end of the log.
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
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.directory = directory
        self.settings = settings
        self.state = LogState.OPEN
        self.producers = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = self.high_watermark = loaded.log_end_offset
        self._files = files
        self._segments = loaded.segments
        self._active = loaded.segments.active
        self._epochs = loaded.epochs
        self._snapshots = SnapshotFiles(files, directory)
        self._snapshot_offset = loaded.log_end_offset
        self._flusher = LogFlusher(files, directory, recovery_point)

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
        )

    @property
    def leader_epoch(self) -> int:
        """The newest epoch that wrote here, 0 where none has."""
        return max(self._epochs.latest, 0)

    @property
    def last_stable_offset(self) -> int:
        """What read_committed readers see the log up to: the first open transaction or the high watermark."""
        unstable = self.producers.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """The segments at this moment, the active one last."""
        return self._segments.all

    # --- append ---------------------------------------------------------------------------------------------

    def append_as_leader(
        self, batch: Buffer, *, now_ms: int, leader_epoch: int | None = None
    ) -> AppendResult:
        """Appends one batch as a producer sent it: all of it, or on any error nothing.

        What is changed of it (base offset, leader epoch) is changed on the way to the disk; ``batch`` itself
        is neither written to nor copied, unless the topic uses LogAppendTime, which changes its checksum.

        Args:
            batch: exactly one batch of format 2.
            now_ms: wall clock, milliseconds since the epoch.
            leader_epoch: the leader's; by default the newest epoch of this log.

        Raises:
            BrokerResponseError: what ``check_batch`` refuses, ``ProducerStates.check`` refuses, or
                KafkaStorageError where the disk does not take it.
            IllegalStateError: the log is closed.
        """
        if self.state is not LogState.OPEN:
            self._refuse("append")
        header = check_batch(batch, self.settings, now_ms)
        if header.producer_id >= 0:
            earlier = self.producers.check(header)
            if earlier is not None:
                return self._duplicate(earlier)
        appended_ms = NO_TIMESTAMP
        if self.settings.uses_log_append_time:
            batch, header = _stamp(batch, header, now_ms)
            appended_ms = now_ms
        latest_epoch = self._epochs.latest
        epoch = max(latest_epoch, 0) if leader_epoch is None else leader_epoch
        base_offset = self.log_end_offset
        if epoch > latest_epoch:
            self._epochs.assign(epoch, base_offset)
        last_offset = base_offset + header.last_offset_delta
        if self._active.must_roll(header.size_bytes, last_offset, header.max_timestamp, now_ms):
            self.roll(now_ms)
        assigned = _ASSIGNED.pack(base_offset, header.batch_length, epoch)
        unchanged = memoryview(batch)[_ASSIGNED.size :]
        self._active.append((assigned, unchanged), last_offset, header.max_timestamp)
        if header.producer_id >= 0:
            self.producers.record(header, base_offset, now_ms)
        self.log_end_offset = self.high_watermark = last_offset + 1
        return AppendResult(base_offset, last_offset, appended_ms, self.log_start_offset, False)

    def roll(self, now_ms: int) -> None:
        """Closes the active segment and begins one at the end of the log; an empty one stays.

        The closed segment gets its final time entry, the producers a snapshot; ``sync`` flushes it, or this
        call, where segments fill faster than the housekeeping comes round.

        Raises:
            KafkaStorageError: the new segment could not be made; the log goes on with the old one. Or the
                flush failed, as in ``flush``.
        """
        if self.state is not LogState.OPEN:
            self._refuse("roll")
        if not self._active.size_bytes:
            return
        self._active.log.cut_torn_tail()  # or recovery would end the log there
        self._snapshots.write(self.log_end_offset, self.producers)
        self._snapshot_offset = self.log_end_offset
        segment = LogSegment(self._files, self.directory, self.log_end_offset, self.settings, now_ms)
        segment.create()
        self._active.finish()
        self._flusher.add_closed(self._active)
        self._segments.add(segment)
        self._active = segment
        if self._flusher.is_overdue:
            self.flush()

    # --- read -----------------------------------------------------------------------------------------------

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

    def _position_of(self, limit: int, segment: LogSegment) -> int:
        """Where in a segment the batches from offset ``limit`` on begin."""
        if limit >= self.log_end_offset:
            return segment.size_bytes
        head = segment.find(limit)
        return segment.size_bytes if head is None else head.position

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset:
        """The first offset, in offset order, of a record at least as late as ``timestamp_ms``.

        -1 (``LATEST``) gives the high watermark, -2 (``EARLIEST``) the start of the log, -3
        (``MAX_TIMESTAMP``) the first record with the largest timestamp. Offset and timestamp are -1 where no
        record fits.

        Raises:
            KafkaStorageError: the log cannot be read.
        """
        if self.state is LogState.CLOSED:
            self._refuse("read")
        if timestamp_ms == LATEST:
            return TimestampOffset(self.high_watermark, NO_TIMESTAMP, self.leader_epoch)
        if timestamp_ms == EARLIEST:
            start = self.log_start_offset
            return TimestampOffset(start, NO_TIMESTAMP, self._epochs.epoch_of(start))
        wanted = None if timestamp_ms == MAX_TIMESTAMP else timestamp_ms
        found = find_timestamp(self._segments, wanted, self.log_start_offset, self.high_watermark)
        if found is None:
            return TimestampOffset(-1, NO_TIMESTAMP, -1)
        return TimestampOffset(found.offset, found.timestamp_ms, self._epochs.epoch_of(found.offset))

    def aborted_transactions(self, offset: int, up_to: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [``offset``, ``up_to``), in the order of their markers.

        Raises:
            KafkaStorageError: an index cannot be read.
        """
        return self._segments.aborted_transactions(offset, up_to)

    # --- flush and end --------------------------------------------------------------------------------------

    @property
    def recovery_point(self) -> int:
        """Everything below is on stable storage."""
        return self._flusher.recovery_point

    @property
    def needs_flush(self) -> bool:
        """Whether a closed segment waits to be brought to stable storage."""
        return self._flusher.needs_flush

    def flush(self) -> None:
        """Brings the log to stable storage and moves the recovery point; blocks.

        Raises:
            KafkaStorageError: it could not. After a failed sync the log takes no more appends: what the disk
                has is unknown, and a second try would prove nothing.
        """
        round_ = self._begin_flush()
        try:
            round_.run()
        except KafkaStorageError:
            self.state = LogState.FAILED
            raise
        self._end_flush(round_)

    async def sync(self) -> None:
        """As ``flush``, while others go on using the log; a closed one has nothing left to flush.

        Raises:
            KafkaStorageError: as ``flush``.
        """
        if self._is_closed():
            return
        round_ = self._begin_flush()
        try:
            await round_.run_async()
        except KafkaStorageError:
            if self._is_closed():  # meanwhile: closing flushed it, or it is deleted
                return
            self.state = LogState.FAILED
            raise
        self._end_flush(round_)

    def close(self) -> None:
        """Flushes and closes: final time entry, producer snapshot. A second call does nothing.

        Raises:
            KafkaStorageError: the log is closed, but not cleanly; the next start must recover it.
        """
        if self.state is LogState.CLOSED:
            return
        try:
            if self.state is LogState.FAILED:
                raise KafkaStorageError(f"{self.directory} failed earlier and is closed as it is")
            self._active.finish()
            self.flush()
            if self._snapshot_offset != self.log_end_offset:
                self._snapshots.write(self.log_end_offset, self.producers)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Closes the files as they are, as a crash would, for a log that is to be deleted."""
        self.state = LogState.CLOSED
        self._segments.release_all()

    def _begin_flush(self) -> FlushRound:
        if self.state is not LogState.OPEN:
            self._refuse("flush")
        return self._flusher.begin(self._active, self.log_end_offset)

    def _end_flush(self, done: FlushRound) -> None:
        if self.state is not LogState.OPEN:  # closed meanwhile, or another flush failed: nothing is proven
            return
        for closed in self._flusher.end(done):
            self._segments.touch(closed)

    # --- odds and ends --------------------------------------------------------------------------------------

    def _duplicate(self, earlier: RememberedBatch) -> AppendResult:
        appended_ms = earlier.timestamp_ms if self.settings.uses_log_append_time else NO_TIMESTAMP
        return AppendResult(
            earlier.first_offset, earlier.last_offset, appended_ms, self.log_start_offset, True
        )

    def _is_closed(self) -> bool:
        return self.state is LogState.CLOSED

    def _refuse(self, call: str) -> None:
        """Raises what fits a call that the state does not allow."""
        if self.state is LogState.FAILED:
            raise KafkaStorageError(f"{self.directory} is read-only since a sync to disk failed; no {call}")
        raise IllegalStateError(f"no {call} on the log of {self.topic_partition}: it is {self.state.value}")


def _stamp(batch: Buffer, header: BatchHeader, now_ms: int) -> tuple[Buffer, BatchHeader]:
    stamped = bytearray(batch)
    stamp_log_append_time(stamped, 0, now_ms)
    return stamped, header._replace(attributes=header.attributes | LOG_APPEND_TIME_BIT, max_timestamp=now_ms)
