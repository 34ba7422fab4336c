"""The segments of a log in order of their offsets: how they come, leave, and give way to cleaned copies.

The list is replaced as a whole at every change, so a reader that walks it is not disturbed. Segments leave
renamed ``….deleted``, and are unlinked after ``file.delete.delay.ms``; a copy takes the place of its sources
so that a crash leaves all of the old or all of the new.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence

import attrs

from splashdam.storage.files.disk import Files
from splashdam.storage.segments.indexes import AbortedTransaction
from splashdam.storage.segments.segment import DELETED, SNAPSHOT, SWAP, LogSegment, segment_path

WARM_SEGMENTS = 8
"""Closed segments of one log that keep a descriptor and their indexes in memory after they were read."""


class SegmentList:
    """Segments by base offset; the last is the active one.

    Attributes:
        active: the segment that is written.
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
        """Take the oldest segments out, but never the active one; return them."""
        removed, kept = self._segments[:count], self._segments[count:]
        self._set(kept)
        for segment in removed:
            self._warm.pop(segment, None)
        return removed

    def keep_first(self, count: int) -> None:
        """Take the newest segments out; the last of those that stay is the active one from now on."""
        for segment in self._segments[count:]:
            self._warm.pop(segment, None)
        self._set(self._segments[:count])
        self._warm.pop(self._segments[-1], None)

    def replace(self, sources: Sequence[LogSegment], segment: LogSegment) -> None:
        """Put one segment into the place of neighbours that end before the active one."""
        start = self._segments.index(sources[0])
        self._set((*self._segments[:start], segment, *self._segments[start + len(sources) :]))
        for source in sources:
            self._warm.pop(source, None)

    def walk_from(self, offset: int) -> Iterator[LogSegment]:
        """The segment that may hold ``offset``, then those after it."""
        if offset >= self._bases[-1]:
            yield self._segments[-1]
            return
        segments = self._segments
        for segment in segments[max(0, bisect_right(self._bases, offset) - 1) :]:
            if segment is not segments[-1]:
                self.touch(segment)
            yield segment

    def aborted_transactions(self, offset: int, up_to: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [``offset``, ``up_to``), in the order of their markers.

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

    def touch(self, closed: LogSegment) -> None:
        """Note that a closed segment is in use; the one used longest ago lets go of its files."""
        self._warm[closed] = None
        self._warm.move_to_end(closed)
        while len(self._warm) > WARM_SEGMENTS:
            oldest, _ = self._warm.popitem(last=False)
            # One that waits for its flush keeps its files; it comes back here when that is done.
            if oldest.is_synced:
                oldest.release()

    def release_all(self) -> None:
        """Close every file."""
        self._warm.clear()
        for segment in self._segments:
            segment.release()

    def _set(self, segments: tuple[LogSegment, ...]) -> None:
        self._segments, self.active = segments, segments[-1]
        self._bases = [segment.base_offset for segment in segments]


@attrs.define
class _Removal:
    """One file on its way out."""

    path: str
    due_ms: float
    is_renamed: bool = False


class SegmentRemover:
    """The files of one log that are on their way out, the oldest first.

    Whoever reads a slice of such a file owns a descriptor of it, or its bytes, and goes on reading. A disk
    that refuses a step is asked again at the next turn; a crash between the steps is finished by the next
    start, which unlinks every ``.deleted`` file at once.

    Args:
        files: the file system.
        directory: of the log.
        on_work: called when there will be something to do.
    """

    def __init__(self, files: Files, directory: str, on_work: Callable[[], None]) -> None:
        self.on_work = on_work
        self._files = files
        self._directory = directory
        self._removals: deque[_Removal] = deque()
        self._has_unsynced_names = False

    @property
    def next_due_ms(self) -> float:
        """When ``unlink_due`` has something to do, on the clock that ``add`` was told; infinity for never."""
        return self._removals[0].due_ms if self._removals else math.inf

    @property
    def has_undurable_renames(self) -> bool:
        """Whether a start might find a file of a removed segment by its old name, and take it in."""
        return self._has_unsynced_names or any(not removal.is_renamed for removal in self._removals)

    def add(self, segments: Sequence[LogSegment], due_ms: float) -> None:
        """Take segments that are out of the log's list, and rename their files.

        Args:
            segments: in the order of their offsets, so that a crash between two leaves no gap.
            due_ms: when their files may be unlinked.

        Raises:
            KafkaStorageError: a file could not be renamed for good; ``unlink_due`` tries again.
        """
        self.on_work()
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
        """Rename what is not renamed yet, for good.

        Raises:
            KafkaStorageError: a file could not be renamed, or that would not last; a later call tries again.
        """
        for removal in self._removals:
            if not removal.is_renamed:
                if self._files.size_bytes(removal.path) is not None:
                    self._files.rename(removal.path, removal.path + DELETED)
                removal.is_renamed = self._has_unsynced_names = True
        if self._has_unsynced_names:
            self._files.sync_directory(self._directory)  # or a power cut would undo it
            self._has_unsynced_names = False


class SegmentSwapper:
    """Swaps segments of one log.

    ``….cleaned`` files are whole and synced; renamed ``….swap``, they count. From then on the log works with
    them. What is left then (the sources ``….deleted``, the copy under its final name) can be tried again as
    often as the disk refuses it; the next start would finish it, too (``recovery.py``). Sources go
    in the order of their offsets: a tombstone must not go before what it deletes.

    Args:
        files: the file system.
        directory: of the log.
        segments: of the log.
        remover: takes the sources.
        on_removed: is told which segments are out of the list.
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
        self._unfinished: LogSegment | None = None  # works under its .swap names
        self._given_up: LogSegment | None = None  # never came to count; its files must go

    @property
    def is_unfinished(self) -> bool:
        """Whether ``finish`` has something to do."""
        return self._unfinished is not None or self._given_up is not None

    def swap_in(self, sources: Sequence[LogSegment], cleaned: LogSegment, due_ms: float) -> None:
        """Put ``cleaned``, complete and synced, into the place of ``sources``.

        Args:
            sources: neighbours in the log, closed and flushed; the first has the base offset of ``cleaned``.
            cleaned: under its ``.cleaned`` names. Nothing may be left of an earlier swap (``finish``).
            due_ms: when the files of the sources may be unlinked, on the clock of ``SegmentRemover``.

        Raises:
            KafkaStorageError: the disk refuses. Either the sources are still in place, or ``cleaned`` is, and
                ``is_unfinished`` says that something is left to do.
        """
        self._remover.on_work()  # should the disk refuse, the rest is to be done later
        self._given_up = cleaned
        cleaned.move_to(SWAP)
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
            KafkaStorageError: it still does.
        """
        self._finish_last()
        if self._given_up is not None:
            self._given_up.discard()
            # Last of all the .log: without its indexes it is whole, they alone would be another's.
            for path in reversed(self._given_up.paths()):
                self._files.unlink(path)
            self._given_up = None

    def _finish_last(self) -> None:
        if self._unfinished is None:
            return
        self._remover.rename_all()
        self._unfinished.move_to("")
        self._files.sync_directory(self._directory)
        self._unfinished = None
