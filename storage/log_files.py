"""The files of one log: its segments and what stands beside them, made, cut and removed step by step.

The order of the steps is what this is about: a power cut between any two of them leaves a log without a gap,
and producers that are known as far as its batches go.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from splashdam.storage.files.disk import Files
from splashdam.storage.flushing import FlushedLog, LogFlusher
from splashdam.storage.producers.replay import make_producers_durable, producers_at
from splashdam.storage.producers.snapshots import SnapshotFiles
from splashdam.storage.producers.state import ProducerStates
from splashdam.storage.recovery import LoadedLog
from splashdam.storage.segments.segment import LogSegment
from splashdam.storage.segments.segment_list import SegmentRemover, SegmentSwapper


class LogFiles:
    """The files of one log in one directory. Where offsets begin and end is the log's business.

    Args:
        log: whose files they are.
        files: the file system.
        directory: where they are.
        loaded: what was found in them.
        recovery_point: everything below is on stable storage.
        flushed_ms: wall clock, milliseconds since the epoch, from which ``flush.ms`` counts.
        names_are_synced: what the directory lists is on stable storage.
        on_work: called when a segment waits for its flush, or files for their end.

    Attributes:
        directory: see above.
        segments: in order.
        epochs: where leader epochs begin.
        flusher: brings all of it to stable storage.
        swapper: puts the copies that compaction makes into the place of segments.
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
        self._unfinished: LogSegment | None = None  # one that could not be made; a file of it may be left

    def producers_at(self, offset: int) -> ProducerStates:
        """What the batches below ``offset`` tell of producers.

        Raises:
            KafkaStorageError: they cannot be read.
        """
        return producers_at(self._snapshots, self.segments.all, offset)

    def roll(self, producers: ProducerStates, now_ms: int) -> None:
        """Closes the active segment and begins one at the end of the log; errors as of ``Log.roll``."""
        full, end = self.segments.active, self._log.log_end_offset
        if self._unfinished is not None:
            self._unfinished.delete()
        full.log.cut_torn_tail()  # or recovery would end the log there
        self._snapshots.write(end, producers)
        self._snapshot_offset = end
        segment = LogSegment(self._files, self.directory, end, self._log.settings, now_ms)
        self._unfinished = segment
        segment.create()
        self._unfinished = None
        full.append_final_time_entry()
        self.flusher.add_closed(full)
        self.segments.add(segment)
        self._on_work()
        self.flusher.flush_if_overdue()

    def close(self, producers: ProducerStates) -> None:
        """Leaves all in order, but the files open.

        Raises:
            KafkaStorageError: the disk refuses; the next start must recover the log.
        """
        self.segments.active.append_final_time_entry()
        self.flusher.flush()
        if self._snapshot_offset != self._log.log_end_offset:
            self._snapshots.write(self._log.log_end_offset, producers)

    # --- the first segments go ------------------------------------------------------------------------------

    @property
    def has_undurable_renames(self) -> bool:
        """Whether a start might find a file of a removed segment by its old name, and take it in."""
        return self._remover.has_undurable_renames

    def make_durable_from(self, first: LogSegment) -> None:
        """Sees to it that ``first`` and what follows lasts before the rest goes.

        That is its names, and producers that only the rest speaks of.

        Raises:
            KafkaStorageError: the disk refuses.
        """
        self._files.sync_directory(self.directory)
        make_producers_durable(self._snapshots, self.segments.all, first.base_offset)
        if first.base_offset == self._log.log_end_offset:
            self._snapshot_offset = first.base_offset  # or the close would put an unsynced one in its place

    def remove_first(self, count: int, due_ms: float) -> None:
        """Removes the oldest segments, whose files may be unlinked at ``due_ms``.

        Raises:
            KafkaStorageError: the disk refused a step; what is out of the log stays out.
        """
        removed = self.segments.remove_first(count)
        self.flusher.forget(removed)
        self._remover.add(removed, due_ms)

    @property
    def next_unlink_ms(self) -> float:
        """When ``unlink_due`` has something to do, on the clock of ``remove_first``."""
        return -math.inf if self.swapper.is_unfinished else self._remover.next_due_ms

    def unlink_due(self, now_ms: float) -> None:
        """Unlinks the files of removed segments whose delay is over, and finishes swaps left unfinished.

        Raises:
            KafkaStorageError: the disk refuses; a later call tries again, and so does the next start.
        """
        self.swapper.finish()
        self._remover.unlink_due(now_ms)

    # --- the last segments go -------------------------------------------------------------------------------

    def cut_at(self, offset: int) -> int:
        """Drops the batch that holds ``offset`` and all behind it; returns where the log ends then.

        Segments go for good before the one in front is cut.

        Raises:
            KafkaStorageError: the disk refuses.
        """
        self.swapper.finish()
        behind = (n for n, each in enumerate(self.segments.all) if each.base_offset > offset)
        self._drop_from(next(behind, None))
        active = self.segments.active
        head = active.find(offset)
        if head is None:
            active.prepare_for_append()
            return offset
        active.cut(head)
        return min(offset, head.base_offset)

    def truncate_fully(self, offset: int, now_ms: int) -> None:
        """Drops everything; an empty segment at ``offset`` is what there is then.

        Raises:
            KafkaStorageError: the disk refuses.
        """
        self.swapper.finish()
        for held in self._snapshots.offsets():
            self._snapshots.delete(held)
        self.epochs.cut(0, -1)  # none of them says anything of what comes now
        self._drop_from(1)
        first = self.segments.active
        segment = LogSegment(self._files, self.directory, offset, self._log.settings, now_ms)
        if segment.base_offset == first.base_offset:
            first.delete()
            segment.create()
        else:
            segment.create()  # before the other goes: a start must find a segment to tell where the log is
            first.delete()
        self._files.sync_directory(self.directory)
        self.segments.add(segment)
        self.segments.remove_first(1)

    def truncate_state(self, log_start_offset: int, end: int) -> None:
        """Drops what small files say of offsets from ``end`` on, where the log ends now.

        Raises:
            KafkaStorageError: the disk refuses.
        """
        self.epochs.cut(log_start_offset, end)
        self.flusher.truncate(end)
        for held in self._snapshots.offsets():
            if held > end:
                self._snapshots.delete(held)
        self._snapshot_offset = -1

    def _drop_from(self, number: int | None) -> None:
        """Removes the segments from the one of this number on, the last one first."""
        removed = () if number is None else self.segments.all[number:]
        for segment in reversed(removed):
            segment.delete()
        if removed:
            self._files.sync_directory(self.directory)
            self.segments.keep_first(len(self.segments.all) - len(removed))
