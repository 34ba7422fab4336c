"""The segments of a log in order of their offsets, and how many closed ones may keep files open.

The list is replaced as a whole at every change, so a reader that walks it is not disturbed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from splashdam.storage.index.txn_index import AbortedTransaction
from splashdam.storage.segment import LogSegment

WARM_SEGMENTS = 8
"""Closed segments of one log that keep a descriptor and their indexes in memory after they were read."""


class SegmentList:
    """Segments by base offset; the last is the active one."""

    def __init__(self, segments: Sequence[LogSegment]) -> None:
        self._set(tuple(segments))
        self._warm: OrderedDict[LogSegment, None] = OrderedDict()

    @property
    def all(self) -> tuple[LogSegment, ...]:
        return self._segments

    @property
    def active(self) -> LogSegment:
        return self._segments[-1]

    def add(self, segment: LogSegment) -> None:
        """Adds a new active segment."""
        self._set((*self._segments, segment))

    def remove_first(self, count: int) -> tuple[LogSegment, ...]:
        """Takes the oldest segments out, but never the active one; returns them."""
        removed, kept = self._segments[:count], self._segments[count:]
        self._set(kept)
        for segment in removed:
            self._warm.pop(segment, None)
        return removed

    def keep_first(self, count: int) -> None:
        """Takes the newest segments out; the last of those that stay is the active one from now on."""
        for segment in self._segments[count:]:
            self._warm.pop(segment, None)
        self._set(self._segments[:count])
        self._warm.pop(self._segments[-1], None)

    def replace(self, sources: Sequence[LogSegment], segment: LogSegment) -> None:
        """Puts one segment into the place of neighbours that end before the active one."""
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
        """Notes that a closed segment is in use; the one used longest ago lets go of its files."""
        self._warm[closed] = None
        self._warm.move_to_end(closed)
        while len(self._warm) > WARM_SEGMENTS:
            oldest, _ = self._warm.popitem(last=False)
            # One that waits for its flush keeps its files; it comes back here when that is done.
            if oldest.is_synced:
                oldest.release()

    def release_all(self) -> None:
        """Closes every file."""
        self._warm.clear()
        for segment in self._segments:
            segment.release()

    def _set(self, segments: tuple[LogSegment, ...]) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
