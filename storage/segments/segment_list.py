"""The segments of a log by offset, their removal, and their replacement by compacted copies.

The list is replaced as a whole at every change, so iterating over it is safe. Removed segments are renamed
``….deleted`` and unlinked after ``file.delete.delay.ms``. A copy replaces its sources in such an order that a
crash leaves all of the old or all of the new.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import attrs

from splashdam.storage.files.disk import Files
from splashdam.storage.segments.indexes import AbortedTransaction
from splashdam.storage.segments.segment import DELETED, SNAPSHOT, SWAP, LogSegment, segment_path

WARM_SEGMENTS = 8
"""Closed segments of a log that keep their descriptor and indexes after a read; descriptors run out first."""


class SegmentList:
    """Segments by base offset.

    Attributes:
        active: the last segment, which is appended to.
    """

    def __init__(self, segments: Sequence[LogSegment]) -> None:
        self._set(tuple(segments))
        self._warm: OrderedDict[LogSegment, None] = OrderedDict()

    @property
    def all(self) -> tuple[LogSegment, ...]:
        return self._segments

    def add(self, segment: LogSegment) -> None:
        """Add a new active segment."""
        self._set((*self._segments, segment))

    def remove_first(self, count: int) -> tuple[LogSegment, ...]:
        """Take the ``count`` oldest segments out of the list, never the active one; return them."""
        removed, kept = self._segments[:count], self._segments[count:]
        self._set(kept)
        for segment in removed:
            self._warm.pop(segment, None)
        return removed

    def keep_first(self, count: int) -> None:
        """Take all but the ``count`` oldest segments out; the last one left becomes the active one."""
        for segment in self._segments[count:]:
            self._warm.pop(segment, None)
        self._set(self._segments[:count])
        self._warm.pop(self._segments[-1], None)

    def replace(self, sources: Sequence[LogSegment], segment: LogSegment) -> None:
        """Replace neighbouring closed segments by one segment."""
        start = self._segments.index(sources[0])
        self._set((*self._segments[:start], segment, *self._segments[start + len(sources) :]))
        for source in sources:
            self._warm.pop(source, None)

    def walk_from(self, offset: int, *, touches: bool = True) -> Iterator[LogSegment]:
        """Iterate over the segments, beginning with the one that may hold ``offset``.

        Args:
            offset: where to begin.
            touches: `touch` each. False where only facts in memory are read: each use closes the files of
                another segment.
        """
        if offset >= self._bases[-1]:
            yield self._segments[-1]
            return
        for segment in islice(self._segments, max(0, bisect_right(self._bases, offset) - 1), None):
            if touches:
                self.touch(segment)
            yield segment

    def aborted_transactions(self, offset: int, up_to: int) -> list[AbortedTransaction]:
        """Return aborted transactions with records in [``offset``, ``up_to``), in the order of their markers.

        Raises:
            KafkaStorageError: an index cannot be read.
        """
        found = []
        for segment in self.walk_from(offset):
            for aborted in segment.txn_index.entries():
                if aborted.last_offset >= offset and aborted.first_offset < up_to:
                    found.append(aborted)
                if aborted.last_stable_offset >= up_to:
                    return found
        return found

    def may_have_aborted(self, offset: int) -> bool:
        """Return false if no aborted transaction has records from ``offset`` on.

        True does not say that there is one: indexes of segments that are not active are not loaded for this.

        Raises:
            KafkaStorageError: an index cannot be read.
        """
        return offset < self._bases[-1] or len(self.active.txn_index) > 0

    def touch(self, segment: LogSegment) -> None:
        """Note a use of a segment; close the files of the closed one that was used longest ago."""
        if segment is self._segments[-1]:
            return
        self._warm[segment] = None
        self._warm.move_to_end(segment)
        while len(self._warm) > WARM_SEGMENTS:
            oldest, _ = self._warm.popitem(last=False)
            # A segment that waits for its flush keeps its files; the flusher calls `touch` afterwards.
            if oldest.is_synced:
                oldest.release()

    def release_all(self) -> None:
        self._warm.clear()
        for segment in self._segments:
            segment.release()

    def _set(self, segments: tuple[LogSegment, ...]) -> None:
        self._segments, self.active = segments, segments[-1]
        self._bases = [segment.base_offset for segment in segments]


@attrs.define
class _Removal:
    """One file to be renamed and unlinked."""

    path: str
    due_ms: float
    is_renamed: bool = False


class SegmentRemover:
    """Renames and unlinks the files of removed segments, the oldest first.

    Readers of a slice own a descriptor of the file, or its bytes, and are not disturbed. A step that the disk
    refuses is tried again with the next turn. After a crash the next start unlinks every ``.deleted`` file.

    Args:
        files: the file system.
        directory: the log's directory.
        on_work: called when there are files to unlink later.
    """

    def __init__(self, files: Files, directory: str, on_work: Callable[[], None]) -> None:
        self.on_work = on_work
        self._files = files
        self._directory = directory
        self._removals: deque[_Removal] = deque()
        self._has_unsynced_names = False

    @property
    def next_due_ms(self) -> float:
        """When ``unlink_due`` has something to do, by the clock of ``due_ms``; infinity for never."""
        return self._removals[0].due_ms if self._removals else math.inf

    @property
    def has_undurable_renames(self) -> bool:
        """Whether a start might find files of removed segments under their old names and load them."""
        return self._has_unsynced_names or any(not removal.is_renamed for removal in self._removals)

    def add(self, segments: Sequence[LogSegment], due_ms: float) -> None:
        """Rename the files of segments that have left the list, and note when to unlink them.

        Args:
            segments: in the order of their offsets, so that a crash between two renames leaves no gap.
            due_ms: when their files may be unlinked.

        Raises:
            KafkaStorageError: a file could not be renamed durably; ``unlink_due`` tries again.
        """
        self.on_work()  # first: if the disk refuses a rename, the rest is done later
        for segment in segments:
            segment.discard()
            for path in (*segment.paths(), segment_path(self._directory, segment.base_offset, SNAPSHOT)):
                self._removals.append(_Removal(path, due_ms))
        self.rename_all()

    def unlink_due(self, now_ms: float) -> None:
        """Unlink the files whose delay is over.

        Raises:
            KafkaStorageError: a file could not be renamed or unlinked; it stays in the queue.
        """
        self.rename_all()
        while self.next_due_ms <= now_ms:
            self._files.unlink(self._removals[0].path + DELETED)
            self._removals.popleft()

    def rename_all(self) -> None:
        """Rename the files that still have their old names, and sync the directory.

        Raises:
            KafkaStorageError: a rename or the sync failed; a later call tries again.
        """
        for removal in self._removals:
            if not removal.is_renamed:
                if self._files.size_bytes(removal.path) is not None:
                    self._files.rename(removal.path, removal.path + DELETED)
                removal.is_renamed = self._has_unsynced_names = True
        if self._has_unsynced_names:
            self._files.sync_directory(self._directory)  # or a power cut would bring the old names back
            self._has_unsynced_names = False


class SegmentSwapper:
    """Replaces segments of one log by compacted copies.

    A copy is complete and synced as ``….cleaned``. Renamed to ``….swap`` it counts, and the log uses it at
    once. The rest (sources renamed to ``….deleted``, the copy's final name) is repeated as often as the disk
    refuses it, and the next start would finish it, too (``recovery.py``). So no failure leaves the log
    between two states. Sources go in the order of their offsets: a tombstone must not go before the records
    that it deletes.

    Args:
        files: the file system.
        directory: the log's directory.
        segments: the log's segments.
        remover: removes the sources.
        on_removed: called with the segments that have left the list.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        segments: SegmentList,
        remover: SegmentRemover,
        on_removed: Callable[[Sequence[LogSegment]], None],
    ) -> None:
        self._files = files
        self._directory = directory
        self._segments = segments
        self._remover = remover
        self._on_removed = on_removed
        self._unfinished: LogSegment | None = None  # in use under its .swap names
        self._given_up: LogSegment | None = None  # a copy that never counted; its files must be removed

    @property
    def is_unfinished(self) -> bool:
        """Whether ``finish`` has something to do."""
        return self._unfinished is not None or self._given_up is not None

    def swap_in(self, sources: Sequence[LogSegment], cleaned: LogSegment, due_ms: float) -> None:
        """Replace ``sources`` by ``cleaned``, which is complete and synced.

        Args:
            sources: neighbours in the log, closed and flushed; the first has the base offset of ``cleaned``.
            cleaned: under its ``.cleaned`` names. Nothing may be left of an earlier swap (``finish``).
            due_ms: when the files of the sources may be unlinked, by the clock of ``SegmentRemover``.

        Raises:
            KafkaStorageError: the disk refuses. Either the sources are still in use, or ``cleaned`` is; in
                both cases ``finish`` has something to do.
        """
        self._remover.on_work()  # if the disk refuses a step, the rest is done later
        # Until all of its names are changed, and durably, it does not count: then ``finish`` removes it.
        self._given_up = cleaned
        cleaned.move_to(SWAP)
        # Before any source goes: a power cut could leave neither the sources nor a copy that counts.
        self._files.sync_directory(self._directory)
        self._given_up, self._unfinished = None, cleaned
        self._segments.replace(sources, cleaned)
        self._on_removed(sources)
        sources[0].discard()  # its files are replaced by those of the same name
        self._remover.add(sources[1:], due_ms)
        self._finish_last()

    def finish(self) -> None:
        """Do what the disk refused earlier.

        Raises:
            KafkaStorageError: the disk still refuses.
        """
        self._finish_last()
        if self._given_up is not None:
            self._given_up.discard()
            # The .log last: without indexes a segment is still sound, but a start would take indexes without
            # it for another segment's.
            for path in reversed(self._given_up.paths()):
                self._files.unlink(path)
            self._given_up = None

    def _finish_last(self) -> None:
        if self._unfinished is None:
            return
        # The sources first: no start may find the copy under its final name beside sources that overlap it.
        self._remover.rename_all()
        self._unfinished.move_to("")
        self._files.sync_directory(self._directory)
        self._unfinished = None
