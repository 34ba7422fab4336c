"""The log of one partition: batches in segments, appended to by its leader, read by offset or timestamp.

All methods belong to one thread (the broker's loop); ``sync`` alone leaves it while the disk works. Bytes
handed out are ``FileSlice``s, which outlive whatever happens to the log. Reading stands in
``log_reading.py``, flushing in ``log_flush.py``, appending in ``log_appending.py``, what replication needs
in ``log_following.py``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial

from splashdam.model.broker_errors import KafkaStorageError, OffsetOutOfRangeError
from splashdam.model.values import TopicPartition
from splashdam.storage.append_result import LogState
from splashdam.storage.cleaning.swapping import SegmentSwapper
from splashdam.storage.files.disk import Files
from splashdam.storage.log_flush import LogFlusher
from splashdam.storage.log_following import FollowingLog
from splashdam.storage.log_reading import EARLIEST, LATEST, MAX_TIMESTAMP, NO_TIMESTAMP
from splashdam.storage.producers.replay import make_producers_durable
from splashdam.storage.producers.snapshots import SnapshotFiles
from splashdam.storage.recovery.loader import LoadedLog, LogLoader
from splashdam.storage.retention import LogFacts, SegmentFacts, expired_segments
from splashdam.storage.segment_removal import SegmentRemover
from splashdam.storage.settings import LogSettings

__all__ = ["EARLIEST", "LATEST", "MAX_TIMESTAMP", "NO_TIMESTAMP", "Log"]

_logger = logging.getLogger(__name__)


class Log(FollowingLog):
    """One partition's log; made by ``Log.open``.

    Attributes are those of ``ReadableLog`` and ``FollowingLog``.
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
        super().__init__(
            files,
            directory,
            topic_partition,
            settings,
            loaded,
            topic_id=topic_id,
            recovery_point=recovery_point,
            now_ms=now_ms,
            on_work=partial(on_work, self),
            recovered_high_watermark=recovered_high_watermark,
        )

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
            self._active.reconfigure(settings)

    # --- the start of the log -------------------------------------------------------------------------------

    @property
    def log_start_to_keep(self) -> int | None:
        """What a checkpoint must say of the log's start; None where the first segment's name says it.

        Never beyond what is on stable storage: after a power cut the log would end before its own start. What
        a checkpoint said when the log was opened was, even if the recovery point does not tell so.
        """
        start = min(self.log_start_offset, max(self.recovery_point, self._kept_start))
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
        if first.base_offset == self.log_end_offset:
            self._snapshot_offset = first.base_offset  # or the close would put an unsynced one in its place
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
            _logger.warning("%s: %s; the active segment stays", self.directory, error.message)
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

    def go_on_in(self, directory: str, loaded: LoadedLog) -> None:
        """Goes on in another directory, whose files hold what this log's do; the old ones are let go of.

        No sync may be under way, and no cleaning.
        """
        old, self._segments = self._segments, loaded.segments
        self.directory, self._epochs, self._active = directory, loaded.epochs, loaded.segments.active
        self._snapshots = SnapshotFiles(self._files, directory)
        self._snapshot_offset = loaded.snapshot_offset
        self._half_made = None
        self._flusher = LogFlusher(self._files, directory, self.log_end_offset, self._epochs)
        self._remover = SegmentRemover(self._files, directory, self._on_work)
        self.swapper = SegmentSwapper(self._files, directory, self._segments, self._remover, self._flusher)
        self._note_move()  # the high watermark is to be kept in that directory now
        old.release_all()

    # --- end ------------------------------------------------------------------------------------------------

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
