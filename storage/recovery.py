"""Loading a partition's directory, and recovery: from the files that are there to a log that can be used.

After a clean shutdown only the tail is read. Otherwise every segment from the recovery point on, or from the
log start offset if that is higher, is checked batch by batch: the first bad batch ends the log, later
segments are removed, indexes and producer state are rebuilt. A missing index or a torn tail is repaired after
a clean shutdown as well. Kafka's LogLoader; the reasons for the order of steps are in
docs/decisions/storage.md.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.record.batch import BatchHeader
from splashdam.storage.directories.partition_metadata import FILE_NAME as METADATA_NAME
from splashdam.storage.files.disk import TEMPORARY, Files
from splashdam.storage.leader_epochs import FILE_NAME as EPOCHS_NAME
from splashdam.storage.leader_epochs import LeaderEpochs
from splashdam.storage.producers.replay import producers_at, replay_batch
from splashdam.storage.producers.snapshots import SnapshotFiles, offset_of_name
from splashdam.storage.producers.state import ProducerStates
from splashdam.storage.segments.batch_scan import iter_heads
from splashdam.storage.segments.indexes import AbortedTransaction
from splashdam.storage.segments.segment import (
    CLEANED,
    DELETED,
    LOG,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    LogSegment,
)
from splashdam.storage.segments.segment_list import SegmentList
from splashdam.storage.settings import LogSettings

_logger = logging.getLogger(__name__)
_base_offset = attrgetter("base_offset")


class LoadedLog(NamedTuple):
    """What a log begins with."""

    segments: SegmentList
    producers: ProducerStates
    epochs: LeaderEpochs
    log_start_offset: int
    log_end_offset: int
    snapshot_offset: int
    """The log end offset for which ``close`` need not write a snapshot; -1 if it has to.

    A start writes none: after the next crash recovery would remove it, and 1,000 snapshots take a while.
    """

    is_unchanged: bool
    """The log was closed in order and nothing was repaired, so the names in its directory are synced."""


class LogLoader:
    """Loads one partition directory; an instance is used once.

    Args:
        files: the file system.
        directory: the partition's directory, which exists.
        settings: the options of the topic.
        log_start_offset: the checkpointed one; 0 if there is none.
        now_ms: wall clock, milliseconds since the epoch.
    """

    def __init__(
        self, files: Files, directory: str, settings: LogSettings, *, log_start_offset: int, now_ms: int
    ) -> None:
        self._files = files
        self._directory = directory
        self._settings = settings
        self._log_start_offset = log_start_offset
        self._now_ms = now_ms
        self._snapshots: SnapshotFiles
        self._epochs = LeaderEpochs(files, directory)
        self._segments: list[LogSegment] = []
        self._producers: ProducerStates | None = None
        self._is_unchanged = True

    def load(self, *, clean_shutdown: bool, recovery_point: int) -> LoadedLog:
        """Load the log; repair it if need be.

        Raises:
            KafkaStorageError: files cannot be read or written, or have names that no log has.
        """
        try:
            return self._load(clean_shutdown=clean_shutdown, recovery_point=recovery_point)
        except BaseException:
            for segment in self._segments:
                segment.release()
            raise

    def _load(self, *, clean_shutdown: bool, recovery_point: int) -> LoadedLog:
        names, had_leftovers = finish_leftovers(self._files, self._directory)
        self._is_unchanged = clean_shutdown and not had_leftovers
        self._snapshots = SnapshotFiles(self._files, self._directory, names)
        self._find_segments(names)
        if not clean_shutdown:
            self._recover_all(recovery_point)
        # Recovery has rebuilt the indexes of what it has checked; this looks at those of all others.
        self._repair_indexes()
        log_end_offset = self._find_end()
        log_start_offset = max(self._log_start_offset, self._segments[0].base_offset)
        self._epochs.cut(log_start_offset, log_end_offset)
        if self._producers is None:
            self._drop_stray_snapshots(log_end_offset)
            self._producers = self._producers_at(log_end_offset)
        needs_snapshot = log_end_offset > log_start_offset or len(self._producers)
        has_snapshot = not needs_snapshot or log_end_offset in self._snapshots.offsets()
        for segment in self._segments[:-1]:
            segment.release()
        self._segments[-1].close_synced_files()
        return LoadedLog(
            SegmentList(self._segments),
            self._producers,
            self._epochs,
            log_start_offset,
            log_end_offset,
            log_end_offset if has_snapshot else -1,
            self._is_unchanged,
        )

    def _find_segments(self, names: list[str]) -> None:
        bases = {offset_of_name(name, self._directory) for name in names if name.endswith(LOG)}
        for name in names:
            # A segment's .log goes first, so this is what an interrupted removal has left.
            if name.endswith(SEGMENT_SUFFIXES) and offset_of_name(name, self._directory) not in bases:
                self._is_unchanged = False
                self._files.unlink(f"{self._directory}/{name}")
        self._segments = [self._segment(base) for base in sorted(bases)]
        self._drop_half_made()

    def _drop_half_made(self) -> None:
        """Remove an empty last segment whose offsets the segment before it holds.

        A roll could neither create it in full nor remove it, and the log went on in the segment before. As
        the last segment it would hide what was appended there.
        """
        while len(self._segments) > 1 and not self._segments[-1].size_bytes:
            if not self._segments[-2].reaches(self._segments[-1].base_offset):
                return
            self._drop_segments(len(self._segments) - 1, f"{self._segments[-2]} has its offsets")

    def _segment(self, base_offset: int) -> LogSegment:
        return LogSegment(self._files, self._directory, base_offset, self._settings, self._now_ms)

    # --- after a crash --------------------------------------------------------------------------------------

    def _recover_all(self, recovery_point: int) -> None:
        if not self._segments:
            return
        # Begin at the log start offset: nobody needs what is below. A removed segment whose name came back
        # after a power cut may be torn, and cutting it would remove the flushed segments behind it as well.
        self._recover_from(max(recovery_point, self._log_start_offset), recovery_point)
        if self._segments[-1].next_offset() < self._log_start_offset:
            # That start offset is wrong and will be ignored, so check from the recovery point after all. The
            # first pass has seen only the newest leader epochs.
            self._epochs.cut(0, self._segments[self._number_of(recovery_point)].base_offset)
            self._recover_from(recovery_point, recovery_point)

    def _number_of(self, offset: int) -> int:
        return max(0, bisect_right(self._segments, offset, key=_base_offset) - 1)

    def _recover_from(self, needed_offset: int, recovery_point: int) -> None:
        """Check the segment that holds ``needed_offset``, and all after it."""
        first = self._number_of(needed_offset)
        if first:
            # An earlier recovery may have cut the end of that segment without a sync, and the log rolled
            # there. If this power cut undid that cut, the segments behind would be lost with the next full
            # check.
            front, end = self._segments[first - 1], self._segments[first].base_offset
            if cut := front.cut_behind(end):
                _logger.warning("%s: cut %d bytes after its last batch", front, cut)
                self._is_unchanged = False
        for offset in self._snapshots.offsets():
            # Snapshots are not synced with the log, so they may know more than it has. They are written again
            # below.
            if offset > self._segments[first].base_offset:
                self._snapshots.delete(offset)
        states = self._producers_at(self._segments[first].base_offset)
        next_offset = 0
        for number in range(first, len(self._segments)):
            segment = self._segments[number]
            if segment.base_offset < next_offset:
                self._drop_segments(number, "its offsets overlap those of the segment before")
                break
            if segment.base_offset > next_offset and self._is_lost(next_offset, recovery_point):
                self._drop_segments(number, f"the offsets from {next_offset} to its base are lost")
                break
            if number > first:
                self._snapshots.write(segment.base_offset, states)
            # Later segments go before this one is cut: a crash in between must not leave them behind a gap.
            following = partial(self._drop_segments, number + 1, f"{segment} has to be cut")
            cut = self._recover(segment, states, before_cut=following)
            next_offset = segment.next_offset()
            if cut:
                break
        self._producers = states

    def _is_lost(self, next_offset: int, recovery_point: int) -> bool:
        """Whether a gap at ``next_offset`` is a loss; compaction makes gaps below the recovery point only."""
        return 0 < recovery_point <= next_offset and not self._settings.is_compacted

    def _recover(
        self, segment: LogSegment, states: ProducerStates, before_cut: Callable[[], None] = lambda: None
    ) -> int:
        """Check and repair one segment; return the bytes cut off.

        ``states`` are the producers at its base offset, and are brought to its end.
        """

        def on_batch(header: BatchHeader, batch: memoryview) -> None:
            self._epochs.found(header.partition_leader_epoch, header.base_offset)
            completed = replay_batch(states, header, lambda: batch)
            if completed is not None and completed.is_aborted:
                segment.txn_index.append(AbortedTransaction(*completed[:4]))

        self._is_unchanged = False
        cut = segment.recover(on_batch, before_cut)
        if cut:
            _logger.warning("%s: cut %d bytes at its end that are no sound batches", segment, cut)
        if segment is self._segments[-1]:
            # No sync here: a start with thousands of logs would wait for thousands of them. The recovery
            # point does not pass this segment before the log's first flush, which syncs its files.
            segment.defer_sync()
        else:
            # A closed segment is not synced again later, and the recovery point will move beyond it.
            segment.append_final_time_entry()
            for file in segment.unsynced_files():
                file.sync_now()
        return cut

    def _drop_segments(self, first: int, reason: str) -> None:
        """Remove segments durably, the last one first."""
        for segment in reversed(self._segments[first:]):
            _logger.warning("removing %s: %s", segment, reason)
            segment.delete()
        if self._segments[first:]:
            # Before the segment in front is cut and the log goes on: a power cut could bring these segments
            # back behind a log that no longer reaches up to them.
            self._files.sync_directory(self._directory)
        del self._segments[first:]

    # --- always ---------------------------------------------------------------------------------------------

    def _repair_indexes(self) -> None:
        for segment in self._segments:
            is_active = segment is self._segments[-1]
            # Closed segments only need the files: loading thousands of indexes would make every start slow,
            # and a look-up checks where its entry leads (``LogSegment.heads_from``).
            if (
                not segment.has_indexes()
                or not segment.txn_index.is_sane(segment.base_offset)
                or (is_active and not segment.offset_index.is_sane(segment.size_bytes))
            ):
                _logger.info("%s: rebuilding its indexes", segment)
                self._recover(segment, self._producers_at(segment.base_offset))
            if not is_active:
                segment.release()

    def _find_end(self) -> int:
        """Make the last segment the active one; return the log end offset."""
        if not self._segments:
            return self._start_empty()
        active = self._segments[-1]
        try:
            end = active.next_offset()
            active.prepare_for_append()
        # The marker vouches for what the broker wrote, not for what became of the file since.
        except CorruptMessageError as error:
            _logger.warning(
                "%s; recovering the segment in spite of the clean shutdown marker",
                error.message,
            )
            self._recover(active, self._producers_at(active.base_offset))
            end = active.next_offset()
            active.prepare_for_append()
        if end < self._log_start_offset:
            # No record is lost by that, and no offset below the start is given out again.
            if not any(segment.size_bytes for segment in self._segments):
                self._drop_segments(0, f"it is empty, and the log starts at offset {self._log_start_offset}")
                return self._start_empty()
            _logger.error(
                "%s: the checkpointed log start offset %d is above the log end offset %d; ignoring it and "
                "keeping all records",
                self._directory,
                self._log_start_offset,
                end,
            )
            self._log_start_offset = 0
        return end

    def _start_empty(self) -> int:
        self._is_unchanged = False
        for offset in self._snapshots.offsets():
            self._snapshots.delete(offset)
        segment = self._segment(self._log_start_offset)
        segment.create()
        self._segments.append(segment)
        self._producers = ProducerStates()
        return segment.base_offset

    # --- producer state -------------------------------------------------------------------------------------

    def _drop_stray_snapshots(self, log_end_offset: int) -> None:
        # As in Kafka: recovery begins at a segment's base or with the newest state, so no other snapshot is
        # of use.
        bases = {segment.base_offset for segment in self._segments}
        offsets = [offset for offset in self._snapshots.offsets() if offset <= log_end_offset]
        kept = {*offsets[-1:], *(offset for offset in offsets if offset in bases)}
        for offset in self._snapshots.offsets():
            if offset not in kept:
                self._snapshots.delete(offset)

    def _producers_at(self, offset: int) -> ProducerStates:
        return producers_at(self._snapshots, self._segments, offset)


def finish_leftovers(files: Files, directory: str) -> tuple[list[str], bool]:
    """Finish or undo interrupted deletions and compactions in a partition directory.

    A cleaner writes ``.cleaned`` files, renames them to ``.swap`` when they are complete, deletes their
    sources, and renames them to their final names. Before ``.swap`` the old segments count, from then on the
    copy.

    Returns:
        The names of the files that are there now, in order, and whether there was anything to do.

    Raises:
        KafkaStorageError: a file could not be read, renamed or removed.
    """
    names = _file_names(files, directory)
    if not any(name.endswith((DELETED, CLEANED, SWAP, TEMPORARY)) for name in names):
        return names, False
    for name in names:
        if name.endswith(DELETED) or _is_half_written(name):
            files.unlink(f"{directory}/{name}")
    cleaned = [name for name in names if name.endswith(CLEANED)]
    swaps = [name for name in names if name.endswith(SWAP)]
    if cleaned:
        # Kafka renames a group from its last segment on: a ``.swap`` at or above a ``.cleaned`` is half a
        # group.
        first_cleaned = min(offset_of_name(name, directory) for name in cleaned)
        broken = [name for name in swaps if offset_of_name(name, directory) >= first_cleaned]
        for name in cleaned + broken:
            files.unlink(f"{directory}/{name}")
        swaps = [name for name in swaps if name not in broken]
    if swaps:
        _finish_swaps(files, directory, names, swaps)
    if any(name.endswith((DELETED, CLEANED, SWAP)) for name in names):
        files.sync_directory(directory)
    return _file_names(files, directory), True


def _file_names(files: Files, directory: str) -> list[str]:
    return [entry.name for entry in files.list_directory(directory) if not entry.is_directory]


def _is_half_written(name: str) -> bool:
    """Whether this is what an interrupted ``write_atomic`` left.

    Other ``.tmp`` files are not the broker's.
    """
    whole = name.removesuffix(TEMPORARY)
    return whole != name and (whole in (METADATA_NAME, EPOCHS_NAME) or whole.endswith(SNAPSHOT))


def _finish_swaps(files: Files, directory: str, names: list[str], swaps: list[str]) -> None:
    first = min(offset_of_name(name, directory) for name in swaps)
    logs = (name for name in swaps if name.endswith(LOG + SWAP))
    end = max((_next_offset(files, directory, name) for name in logs), default=first)
    for name in names:
        is_source = name.partition(".")[0].isdigit() and not name.endswith((SWAP, DELETED, CLEANED))
        if is_source and first <= offset_of_name(name, directory) < end:
            files.unlink(f"{directory}/{name}")
    # Sources go before the copy gets its final name, or the next start would find both.
    for name in swaps:
        files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")


def _next_offset(files: Files, directory: str, name: str) -> int:
    log = files.open_log(f"{directory}/{name}")
    try:
        offset = offset_of_name(name, directory)
        for head in iter_heads(log, 0, log.end):
            offset = head.last_offset + 1
        return offset
    finally:
        log.close()
