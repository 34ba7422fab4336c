"""The log of one partition: batches in segments, appended to by its leader, read by offset or timestamp.

All methods belong to one thread (the broker's loop); ``sync`` alone leaves it while the disk works. Bytes
handed out are ``FileSlice``s, which outlive whatever happens to the log. Reading stands in
``log_reading.py``, flushing in ``log_flushing.py``.
"""

from __future__ import annotations

import logging
import math
import struct
from collections.abc import Callable
from functools import partial

from splashdam.embedded_broker.storage.append_checks import check_batch, check_size
from splashdam.embedded_broker.storage.append_result import AppendResult, LogState
from splashdam.embedded_broker.storage.cleaning.swapping import SegmentSwapper
from splashdam.embedded_broker.storage.files import Files
from splashdam.embedded_broker.storage.loader import LoadedLog, LogLoader
from splashdam.embedded_broker.storage.log_flushing import FlushableLog
from splashdam.embedded_broker.storage.log_reading import EARLIEST, LATEST, MAX_TIMESTAMP, NO_TIMESTAMP
from splashdam.embedded_broker.storage.producer_snapshot import SnapshotFiles
from splashdam.embedded_broker.storage.producer_state import RememberedBatch
from splashdam.embedded_broker.storage.replay import make_producers_durable
from splashdam.embedded_broker.storage.retention import LogFacts, SegmentFacts, expired_segments
from splashdam.embedded_broker.storage.segment import LogSegment
from splashdam.embedded_broker.storage.segment_removal import SegmentRemover
from splashdam.embedded_broker.storage.settings import LogSettings
from splashdam.embedded_broker.storage.transaction_marker import TransactionMarker
from splashdam.embedded_broker.storage.txn_index import AbortedTransaction
from splashdam.model.broker_errors import KafkaStorageError, OffsetOutOfRangeError
from splashdam.model.values import Buffer, TopicPartition
from splashdam.record.batch import LOG_APPEND_TIME_BIT, BatchHeader, parse_header, stamp_log_append_time

__all__ = ["EARLIEST", "LATEST", "MAX_TIMESTAMP", "NO_TIMESTAMP", "Log"]

_ASSIGNED = struct.Struct(">qii")  # baseOffset, batchLength, partitionLeaderEpoch: all that a leader changes
_logger = logging.getLogger(__name__)


class Log(FlushableLog):
    """One partition's log; made by ``Log.open``.

    Attributes:
        swapper: puts the copies that compaction makes into the place of segments.
        Others are those of ``ReadableLog``.
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
    ) -> None:
        super().__init__(
            files,
            directory,
            topic_partition,
            settings,
            loaded,
            topic_id=topic_id,
            recovery_point=recovery_point,
            now_ms=now_ms,
        )
        self._files = files
        self._snapshots = SnapshotFiles(files, directory)
        self._snapshot_offset = loaded.log_end_offset
        self._on_work = partial(on_work, self)
        self._remover = SegmentRemover(files, directory, self._on_work)
        self.swapper = SegmentSwapper(files, directory, self._segments, self._remover, self._flusher)
        self._half_made: LogSegment | None = None  # one that could not be made; a file of it may be left

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
        )

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
        if self.settings.uses_log_append_time:
            batch, header = _stamp(batch, header, now_ms)
        appended = self._write(batch, header, now_ms, leader_epoch)
        if header.producer_id >= 0:
            self.producers.record(header, appended.base_offset, now_ms)
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
        if ended is not None and ended.is_aborted:
            if self._active.txn_index.file.size_bytes is None:
                self._flusher.add_name()
            self._active.txn_index.append(AbortedTransaction(*ended[:4]))
        return appended

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """What is appended from now on is of this leader epoch; one that is not newer changes nothing.

        Raises:
            KafkaStorageError: it could not be written.
        """
        self._epochs.assign(leader_epoch, self.log_end_offset)

    def _write(
        self, batch: Buffer, header: BatchHeader, now_ms: int, leader_epoch: int | None
    ) -> AppendResult:
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
        self.log_end_offset = self.high_watermark = last_offset + 1
        appended_ms = now_ms if self.settings.uses_log_append_time else NO_TIMESTAMP
        return AppendResult(base_offset, last_offset, appended_ms, self.log_start_offset, False)

    def _duplicate(self, earlier: RememberedBatch) -> AppendResult:
        appended_ms = earlier.timestamp_ms if self.settings.uses_log_append_time else NO_TIMESTAMP
        return AppendResult(
            earlier.first_offset, earlier.last_offset, appended_ms, self.log_start_offset, True
        )

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
        if self._half_made is not None:
            self._half_made.delete()
        self._active.log.cut_torn_tail()  # or recovery would end the log there
        self._snapshots.write(self.log_end_offset, self.producers)
        self._snapshot_offset = self.log_end_offset
        segment = LogSegment(self._files, self.directory, self.log_end_offset, self.settings, now_ms)
        self._half_made = segment
        segment.create()
        self._half_made = None
        self._active.finish()
        self._flusher.add_closed(self._active)
        self._segments.add(segment)
        self._active = segment
        self._on_work()
        if self._flusher.is_overdue:
            self.flush()

    # --- the start of the log -------------------------------------------------------------------------------

    @property
    def log_start_to_keep(self) -> int | None:
        """What a checkpoint must say of the log's start; None where the first segment's name says it.

        Never beyond what is on stable storage: after a power cut the log would end before its own start.
        """
        start = min(self.log_start_offset, self.recovery_point)
        is_said = start <= self._segments.all[0].base_offset and not self._remover.keeps_names
        return None if is_said else start

    def advance_log_start(self, offset: int) -> int:
        """Makes everything below ``offset`` unreadable (DeleteRecords); an offset below the start is fine.

        Whole segments below go with the next ``delete_old_segments``. Returns where the log starts now.

        Raises:
            OffsetOutOfRangeError: ``offset`` is above the high watermark, or negative.
            KafkaStorageError: the log is read-only.
        """
        if self.state is not LogState.OPEN:
            self._refuse("deletion of records")
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
        reasons = expired_segments(self._segment_facts(), self._facts(wall_ms))
        if reasons and len(reasons) == len(self._segments.all) and not self._try_to_roll(wall_ms):
            del reasons[-1]
        if not reasons:
            return 0
        first = self._segments.all[len(reasons)]
        # What is left must last before the rest goes: its names, and producers that only the rest speaks of.
        self._files.sync_directory(self.directory)
        make_producers_durable(self._snapshots, self._segments.all, first.base_offset)
        for segment, reason in zip(self._segments.all, reasons, strict=False):
            _logger.info("removing %s: %s", segment, reason)
        self.advance_log_start(max(first.base_offset, self.log_start_offset))
        removed = self._segments.remove_first(len(reasons))
        self._flusher.forget(removed)
        self._remover.add(removed, now_ms + self.settings.file_delete_delay_ms)
        return len(removed)

    def _try_to_roll(self, now_ms: int) -> bool:
        """On a full disk the active segment cannot be closed, but those before it can still go."""
        try:
            self.roll(now_ms)
        except KafkaStorageError as error:
            _logger.warning("%s: %s; the active segment stays", self.directory, error)
            return False
        return True

    def _segment_facts(self) -> list[SegmentFacts]:
        segments = self._segments.all
        ends = [*(segment.base_offset for segment in segments[1:]), self.log_end_offset]
        return [
            SegmentFacts(
                segment.base_offset,
                end,
                segment.size_bytes,
                partial(self.largest_timestamp, segment),
                segment is self._active,
            )
            for segment, end in zip(segments, ends, strict=True)
        ]

    def _facts(self, wall_ms: int) -> LogFacts:
        return LogFacts(self.settings, self.log_start_offset, self.high_watermark, self.size_bytes, wall_ms)

    @property
    def next_unlink_ms(self) -> float:
        """When ``unlink_deleted`` has something to do, on the clock of ``delete_old_segments``."""
        return -math.inf if self.swapper.is_unfinished else self._remover.next_due_ms

    def unlink_deleted(self, now_ms: float) -> None:
        """Unlinks the files of removed segments whose delay is over, and finishes swaps left unfinished.

        Raises:
            KafkaStorageError: the disk refuses; a later call tries again, and so does the next start.
        """
        if not self._is_closed():  # its directory may be another topic's by now
            self.swapper.finish()
            self._remover.unlink_due(now_ms)

    # --- end ------------------------------------------------------------------------------------------------

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


def _stamp(batch: Buffer, header: BatchHeader, now_ms: int) -> tuple[Buffer, BatchHeader]:
    """A copy whose records all read as of ``now_ms``."""
    stamped = bytearray(batch)
    stamp_log_append_time(stamped, 0, now_ms)
    return stamped, header._replace(attributes=header.attributes | LOG_APPEND_TIME_BIT, max_timestamp=now_ms)
