"""The files of one log: segments, snapshots and leader epochs are created, cut and removed here.

The order of the steps matters: after a power cut between any two of them the log has no gap, and producer
state reaches as far as its batches do. See docs/decisions/storage.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.storage.files.disk import Files
from splashdam.storage.flushing import FlushedLog, LogFlusher
from splashdam.storage.producers.replay import make_producers_durable, producers_at
from splashdam.storage.producers.snapshots import SnapshotFiles
from splashdam.storage.producers.state import ProducerStates
from splashdam.storage.recovery import LoadedLog
from splashdam.storage.segments.segment import LogSegment
from splashdam.storage.segments.segment_list import SegmentRemover, SegmentSwapper


class LogFiles:
    """The files of one log in one directory. ``Log`` keeps the offsets at which the log begins and ends.

    Args:
        log: the log.
        files: the file system.
        directory: absolute path of the partition's directory.
        loaded: what ``LogLoader`` found there.
        recovery_point: every offset below it is on stable storage.
        flushed_ms: wall clock of the last flush, milliseconds since the epoch.
        names_are_synced: the names in the directory are on stable storage.
        on_work: called when a segment has to be flushed, or removed files have to be unlinked.

    Attributes:
        directory: see above.
        segments: the segments in order.
        epochs: the leader epochs and their first offsets.
        flusher: brings the log to stable storage.
        swapper: replaces segments by their compacted copies.
    """

    def __init__(
        self,
        log: FlushedLog,
        files: Files,
        directory: str,
        loaded: LoadedLog,
        *,
        recovery_point: int,
        flushed_ms: int,
        names_are_synced: bool,
        on_work: Callable[[], None],
    ) -> None:
        self.directory = directory
        self.segments = loaded.segments
        self.epochs = loaded.epochs
        self.flusher = LogFlusher(
            log,
            files,
            directory,
            loaded.segments,
            loaded.epochs,
            recovery_point=recovery_point,
            flushed_ms=flushed_ms,
            names_are_synced=names_are_synced,
        )
        self._remover = SegmentRemover(files, directory, on_work)
        self.swapper = SegmentSwapper(files, directory, loaded.segments, self._remover, self.flusher.forget)
        self._log = log
        self._files = files
        self._on_work = on_work
        self._snapshots = SnapshotFiles(files, directory)
        self._snapshot_offset = loaded.snapshot_offset
        # A segment that could not be created in full; some of its files may be left.
        self._unfinished: LogSegment | None = None
        self._has_unsynced_removals = False  # a power cut may bring removed segments back

    def producers_at(self, offset: int) -> ProducerStates:
        """Return the producer state of everything below ``offset``.

        Raises:
            KafkaStorageError: the log or a snapshot cannot be read.
        """
        return producers_at(self._snapshots, self.segments.all, offset)

    def roll(self, producers: ProducerStates, now_ms: int) -> None:
        """Close the active segment and begin one at the end of the log; errors as in ``Log.roll``."""
        full, end = self.segments.active, self._log.log_end_offset
        if self._unfinished is not None:
            self._unfinished.delete()
        # Recovery ends a log at its first bad batch. A roll behind a torn tail would lose all that follows.
        full.log.cut_torn_tail()
        # Recovery can begin with the new segment, and need not read those before it.
        self._snapshots.write(end, producers)
        self._snapshot_offset = end
        # The new segment before anything of the old one changes: if the disk refuses it, the log goes on
        # there.
        segment = LogSegment(self._files, self.directory, end, self._log.settings, now_ms)
        self._unfinished = segment
        segment.create()
        self._unfinished = None
        full.append_final_time_entry()
        self.flusher.add_closed(full)
        self.segments.add(segment)
        self._on_work()
        # Last: if the sync fails, the log is read-only, but its segments are in order.
        self.flusher.flush_if_overdue()

    def close(self, producers: ProducerStates) -> None:
        """Write what a clean shutdown needs; the files stay open.

        Raises:
            KafkaStorageError: the disk refuses; the next start has to recover the log.
        """
        self.segments.active.append_final_time_entry()
        self.flusher.flush()
        if self._snapshot_offset != self._log.log_end_offset:
            self._snapshots.write(self._log.log_end_offset, producers)

    # --- the first segments go ------------------------------------------------------------------------------

    @property
    def has_undurable_renames(self) -> bool:
        """Whether a start might find files of a removed segment under their old names and load them."""
        return self._remover.has_undurable_renames

    def make_durable_from(self, first: LogSegment) -> None:
        """Make ``first`` and all after it durable, before the segments in front of them are removed.

        Raises:
            KafkaStorageError: the disk refuses.
        """
        # Their names, or a power cut could leave neither the old segments nor the new ones.
        self._files.sync_directory(self.directory)
        # And the state of producers whose batches are only in the old ones.
        make_producers_durable(self._snapshots, self.segments.all, first.base_offset)
        if first.base_offset == self._log.log_end_offset:
            # Or `close` would replace the synced snapshot by an unsynced one.
            self._snapshot_offset = first.base_offset

    def remove_first(self, count: int, due_ms: float) -> None:
        """Remove the oldest segments, whose files may be unlinked at ``due_ms``.

        Raises:
            KafkaStorageError: the disk refused a step; segments that have left the log stay out of it.
        """
        removed = self.segments.remove_first(count)
        self.flusher.forget(removed)
        self._remover.add(removed, due_ms)

    @property
    def next_unlink_ms(self) -> float:
        """When ``unlink_due`` has something to do, by the clock of ``remove_first``; infinity for never."""
        return -math.inf if self.swapper.is_unfinished else self._remover.next_due_ms

    def unlink_due(self, now_ms: float) -> None:
        """Unlink the files of removed segments whose delay is over, and finish interrupted swaps.

        Raises:
            KafkaStorageError: the disk refuses; a later call tries again, and so does the next start.
        """
        self.swapper.finish()
        self._remover.unlink_due(now_ms)

    # --- the last segments go -------------------------------------------------------------------------------

    def cut_at(self, offset: int, ended: Callable[[int], None]) -> None:
        """Remove the batch that holds ``offset`` and all after it.

        Args:
            offset: at least that of the first segment.
            ended: called with the new log end offset, also if the disk refuses the rest.

        Raises:
            KafkaStorageError: the disk refuses; a later call goes on.
        """
        self.swapper.finish()
        behind = (n for n, each in enumerate(self.segments.all) if each.base_offset > offset)
        end = self._log.log_end_offset
        try:
            # Durably, before the segment in front of them is cut: a power cut would bring them back behind a
            # log that no longer reaches up to them.
            for removed in self._drop_from(next(behind, len(self.segments.all))):
                end = removed.base_offset
            active = self.segments.active
            head = active.find(offset)
            if head is not None:
                active.cut(head)
            end = offset if head is None else min(offset, head.base_offset)
            active.prepare_for_append()
        finally:
            # Also after a refusal: what has left the disk must not be read, and the next truncation goes on
            # from there.
            ended(end)

    def truncate_fully(self, offset: int, now_ms: int, ended: Callable[[int], None]) -> None:
        """Remove everything and create an empty segment at ``offset``.

        Args:
            offset: where the log is to begin.
            now_ms: wall clock, milliseconds since the epoch.
            ended: called with the new log end offset.

        Raises:
            KafkaStorageError: the disk refuses.
        """
        self.swapper.finish()
        # A removed segment that still has its old name may have that of the new one, which would go with it.
        self._remover.rename_all()
        for held in self._snapshots.offsets():
            self._snapshots.delete(held)
        self.epochs.cut(0, -1)  # none of them covers the offsets to come
        for removed in self._drop_from(1):
            ended(removed.base_offset)
        first = self.segments.active
        segment = LogSegment(self._files, self.directory, offset, self._log.settings, now_ms)
        if segment.base_offset == first.base_offset:
            first.delete()
            segment.create()
        else:
            segment.create()  # first: without any segment a start would begin the log at offset 0
            first.delete()
        self._files.sync_directory(self.directory)
        # In this order, because a list of segments is never empty.
        self.segments.add(segment)
        self.segments.remove_first(1)

    def truncate_state(self, log_start_offset: int, end: int) -> None:
        """Remove snapshots and leader epochs above ``end``, where the log ends now.

        Raises:
            KafkaStorageError: the disk refuses; it may have no room for the epochs.
        """
        self._snapshot_offset = -1
        for held in self._snapshots.offsets():
            if held > end:
                self._snapshots.delete(held)
        self.epochs.cut(log_start_offset, end)

    def _drop_from(self, number: int) -> Iterator[LogSegment]:
        """Remove the segments from this index on, the last one first, so that no crash leaves a gap.

        Yields:
            Each segment that has left the log.
        """
        for last in range(len(self.segments.all) - 1, number - 1, -1):
            segment, failure = self.segments.all[last], None
            # Before the removal, which may fail after its first file: a later call then has to sync, too.
            self._has_unsynced_removals = True
            try:
                segment.delete()
            except KafkaStorageError as error:
                # Without its .log a segment has no records, so it leaves the log even if the disk keeps an
                # index.
                if self._files.size_bytes(segment.paths()[0]) is not None:
                    raise
                failure = error
            self.segments.keep_first(last)
            yield segment
            if failure is not None:
                raise failure
        if self._has_unsynced_removals:
            self._files.sync_directory(self.directory)
            self._has_unsynced_removals = False
