"""From a timestamp to an offset: over the time indexes, then over the records of one batch.

A log may hold millions of batches, and any of them may unpack to megabytes or claim a timestamp that none of
its records has. So a look-up is a generator: it passes a few batches at a time, and yields each batch whose
records must be searched, for its caller to do that beside the loop. Between two steps the log may grow, roll,
lose segments or have them replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple, TypeAlias, TypeVar

import attrs

from splashdam.model.broker_errors import CorruptMessageError, UnsupportedCompressionTypeError
from splashdam.model.errors import UnsupportedCodecError
from splashdam.record.batch import CODEC_MASK, HEADER_BYTES, MAGIC
from splashdam.record.compression import (
    MAX_DECOMPRESSED_BYTES,
    OverLimitError,
    likely_unpacked_bytes,
)
from splashdam.record.damage import DamagedError
from splashdam.record.kernel import find_by_time
from splashdam.record.legacy import iter_entry_records
from splashdam.record.reader import unpack_records
from splashdam.record.stored import parse_stored_header
from splashdam.storage.files.log_file import FileSlice
from splashdam.storage.segments.batch_scan import Head, iter_heads
from splashdam.storage.segments.segment import LogSegment
from splashdam.storage.segments.segment_list import SegmentList

T = TypeVar("T")

STEP_HEADS = 32
"""Batch heads passed in one step: some 30 µs."""

_SEGMENT_HEADS = 8
"""A segment counts as this many heads; as a whole step while its largest timestamp is unknown."""


class TimestampOffset(NamedTuple):
    """Offset, timestamp and leader epoch of a record; -1 each if no record matches."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class FoundRecord(NamedTuple):
    """A record that matches."""

    offset: int
    timestamp_ms: int


@attrs.frozen
class BatchSearch:
    """The search in one batch; may run in any thread.

    Attributes:
        slice: the batch.
        head: the batch's head.
        from_offset: records before it do not count.
        timestamp_ms: the earliest timestamp wanted; None for the largest of the batch.
        size_bytes: an estimate of the bytes to unpack and search.
    """

    slice: FileSlice
    head: Head
    from_offset: int
    timestamp_ms: int | None
    size_bytes: int

    @classmethod
    def of(cls, segment: LogSegment, head: Head, from_offset: int, timestamp_ms: int | None) -> BatchSearch:
        """Return the search in a batch of a segment.

        Raises:
            KafkaStorageError: it cannot be read.
        """
        found = segment.log.slice(head.position, head.size_bytes)
        size_bytes = head.size_bytes
        if found.fileno() is None:  # larger slices are on disk; estimate by their size
            batch = memoryview(found.read())
            codec = parse_stored_header(batch).attributes & CODEC_MASK
            size_bytes = likely_unpacked_bytes(codec, batch[HEADER_BYTES:])
        return cls(found, head, from_offset, timestamp_ms, size_bytes)

    def do(self, max_bytes: int) -> FoundRecord | None:
        """Return the record, or None. A damaged batch counts as one record with the header's timestamp.

        Raises:
            OverLimitError: the batch unpacks to more than ``max_bytes``, which is below the usual limit.
            UnsupportedCompressionTypeError: the codec's library is not installed.
            KafkaStorageError: the batch cannot be read from disk.
        """
        try:
            return self._find(self.slice.read(), max_bytes)
        except UnsupportedCodecError as error:
            raise UnsupportedCompressionTypeError(str(error)) from error
        except OverLimitError:
            if max_bytes < MAX_DECOMPRESSED_BYTES:
                raise
            return self._as_one_record()
        except (CorruptMessageError, DamagedError):
            return self._as_one_record()

    def _find(self, batch: bytes, max_bytes: int) -> FoundRecord | None:
        header = parse_stored_header(batch)
        if header.magic != MAGIC:
            return self._find_legacy(batch, max_bytes)
        found = find_by_time(
            unpack_records(batch, 0, header, max_bytes),
            header.record_count,
            base_offset=header.base_offset,
            base_timestamp=header.base_timestamp,
            append_time=header.max_timestamp if header.is_log_append_time else None,
            from_offset=self.from_offset,
            timestamp_ms=self.timestamp_ms,
        )
        return None if found is None else FoundRecord(*found)

    def _find_legacy(self, batch: bytes, max_bytes: int) -> FoundRecord | None:
        records = (
            FoundRecord(record.offset, record.timestamp_ms)
            for record in iter_entry_records(batch, 0, max_bytes=max_bytes)
            if record.offset >= self.from_offset
        )
        if self.timestamp_ms is None:
            return max(records, key=lambda found: found.timestamp_ms, default=None)
        return next((found for found in records if found.timestamp_ms >= self.timestamp_ms), None)

    def _as_one_record(self) -> FoundRecord | None:
        head = self.head
        if head.last_offset < self.from_offset or head.max_timestamp < (self.timestamp_ms or -1):
            return None
        return FoundRecord(max(head.base_offset, self.from_offset), head.max_timestamp)


Search: TypeAlias = Generator[BatchSearch | int, Any, T]
"""Yields a number where other work may have its turn, or a ``BatchSearch``, whose result it is sent."""


def find_timestamp(
    segments: SegmentList,
    timestamp_ms: int | None,
    from_offset: int,
    up_to: int,
    check_open: Callable[[], None],
) -> Search[FoundRecord | None]:
    """Find the first record in [``from_offset``, ``up_to``) that is at least as late as ``timestamp_ms``.

    With None, find the first record with the largest timestamp. A batch whose records cannot be read counts
    as one record, with its first offset and its header's largest timestamp.

    Args:
        segments: the log's segments.
        timestamp_ms: the earliest timestamp wanted, or None.
        from_offset: the log start offset.
        up_to: where the log ends for the caller.
        check_open: raises if the log has been closed meanwhile.

    Raises:
        UnsupportedCompressionTypeError: the library of a codec is not installed.
        KafkaStorageError: the log cannot be read.
    """
    if timestamp_ms is None:
        timestamp_ms = yield from _largest(segments, from_offset, check_open)
        if timestamp_ms < 0:
            return None
    for found in _Heads(segments, from_offset, timestamp_ms, check_open):
        if found is None:
            yield 1
            continue
        record: FoundRecord | None = yield from _look(*found, from_offset, timestamp_ms)
        if record is not None:
            return record if record.offset < up_to else None
    return None


def _look(
    segment: LogSegment, head: Head, from_offset: int, timestamp_ms: int | None
) -> Search[FoundRecord | None]:
    search = BatchSearch.of(segment, head, from_offset, timestamp_ms)
    try:
        found: FoundRecord | None = yield search
    finally:
        search.slice.close()
    return found


def _largest(segments: SegmentList, from_offset: int, check_open: Callable[[], None]) -> Search[int]:
    """Find the largest timestamp from an offset on."""
    largest = -1
    first = next(segments.walk_from(from_offset, touches=False))
    # Records at its front were deleted (DeleteRecords), and the segment's largest timestamp may be theirs.
    if from_offset > first.base_offset:
        for found in _Heads(segments, from_offset, -1, check_open, only=first):
            if found is None:
                yield 1
            elif found[1].base_offset >= from_offset:
                largest = max(largest, found[1].max_timestamp)
            else:
                record: FoundRecord | None = yield from _look(*found, from_offset, None)
                largest = max(largest, -1 if record is None else record.timestamp_ms)
    offset = from_offset
    while True:
        passed = 0
        # Walked to anew, because segments may be removed or replaced during each yield.
        for segment in segments.walk_from(offset, touches=False):
            if segment.base_offset >= from_offset:
                passed += _cost_of_passing(segment)
                # Known from here on, so the next walk, which begins with this segment, gets on.
                largest = max(largest, _max_timestamp(segments, segment))
            offset = segment.base_offset + 1
            if passed >= STEP_HEADS and segment is not segments.active:
                break
        else:
            return largest
        yield 1
        check_open()


def _cost_of_passing(segment: LogSegment) -> int:
    return _SEGMENT_HEADS if segment.knows_max_timestamp else STEP_HEADS


def _max_timestamp(segments: SegmentList, segment: LogSegment) -> int:
    """Return a segment's largest timestamp; that is a use of its files only if they have to be read."""
    if not segment.knows_max_timestamp:
        segments.touch(segment)
    return segment.max_timestamp


class _Heads:
    """The batches from an offset on whose largest timestamp is at least ``timestamp_ms``.

    The iterator yields None after a number of other batches. The log may change at each yield: the iterator
    goes on at its position if the segment is still there, otherwise by offset.

    Args:
        segments: the log's segments.
        from_offset: batches that end before it are left out.
        timestamp_ms: the smallest timestamp wanted.
        check_open: raises if the log has been closed meanwhile.
        only: search this segment alone.
    """

    def __init__(
        self,
        segments: SegmentList,
        from_offset: int,
        timestamp_ms: int,
        check_open: Callable[[], None],
        *,
        only: LogSegment | None = None,
    ) -> None:
        self._segments = segments
        self._offset = from_offset  # of the first batch that has not been passed
        self._timestamp_ms = timestamp_ms
        self._check_open = check_open
        self._only = only
        self._at: tuple[LogSegment, int] | None = None  # its segment and position
        self._passed = 0

    def __iter__(self) -> Iterator[tuple[LogSegment, Head] | None]:
        while True:
            for segment in self._segments.walk_from(self._offset, touches=False):
                if self._only not in (None, segment):
                    return
                self._offset = max(self._offset, segment.base_offset)
                self._passed += _cost_of_passing(segment)
                head = self._next_in(segment)
                if head is not None or self._passed >= STEP_HEADS:
                    break
            else:
                return
            self._passed = 0
            yield None if head is None else (segment, head)
            self._check_open()

    def _next_in(self, segment: LogSegment) -> Head | None:
        """Return the segment's next match; None at the segment's end, or if this step is over."""
        if _max_timestamp(self._segments, segment) < self._timestamp_ms:
            return None
        self._segments.touch(segment)
        for head in self._from_here(segment):
            self._at = segment, head.position + head.size_bytes
            self._passed += 1
            if head.last_offset >= self._offset:
                self._offset = head.last_offset + 1
                if head.max_timestamp >= self._timestamp_ms:
                    return head
            if self._passed >= STEP_HEADS:
                return None
        return None

    def _from_here(self, segment: LogSegment) -> Iterator[Head]:
        if self._at is not None and self._at[0] is segment and self._at[1] <= segment.size_bytes:
            return iter_heads(segment.log, self._at[1], segment.size_bytes)
        return segment.heads_from(max(segment.time_index.lookup(self._timestamp_ms), self._offset))
