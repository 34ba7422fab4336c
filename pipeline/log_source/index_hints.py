"""Offset and time indexes as hints: an entry is verified against the log before it is used.

An index may be missing, torn, preallocated with zeros, or belong to another log. A position counts only if
the batch that it names is there. Wrong entries only cause more of the log to be read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import chain, islice, pairwise
from struct import Struct
from typing import NamedTuple

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.pipeline.log_source.directories import Segment
from splashdam.pipeline.log_source.filesystems import LogFile, LogFiles
from splashdam.record.batch import HEADER_BYTES, BatchHeader
from splashdam.record.legacy import SMALLEST_ENTRY_BYTES
from splashdam.record.stored import header_is_there, parse_stored_header, stored_crc_ok
from splashdam.storage.inspect.read_only import LARGEST_BATCH_BYTES
from splashdam.storage.segments.indexes import OFFSET_ENTRY, TIME_ENTRY
from splashdam.storage.segments.segment import INDEX, TIME_INDEX

_TRIED = 8  # hints tried on each side before giving up


class Hint(NamedTuple):
    """A batch should begin at ``position``, and ``last_offset`` should be its last."""

    position: int
    last_offset: int


class OffsetHints:
    """The offset index of one segment, loaded on first use.

    Args:
        load: returns the hints, ascending by position and offset.
        file: the segment's ``.log``.
    """

    def __init__(self, load: Callable[[], Iterable[Hint]], file: LogFile) -> None:
        self._load = load
        self._file = file

    @cached_property
    def _hints(self) -> list[Hint]:
        return list(self._load())

    def at_or_before(self, offset: int) -> Hint | None:
        """Return where to begin so as not to miss ``offset``; None for the segment's beginning."""
        end = bisect_right(self._hints, offset, key=lambda hint: hint.last_offset)
        return self._first_sound(reversed(self._hints[max(0, end - _TRIED) : end]))

    def behind(self, offset: int) -> int | None:
        """Return a position from which on every batch is after ``offset``; None if no hint has one."""
        start = bisect_left(self._hints, offset, key=lambda hint: hint.last_offset) + 1
        found = self._first_sound(self._hints[start : start + _TRIED])
        return None if found is None else found.position

    def after(self, position: int, end: int) -> int | None:
        """Return the first position in (``position``, ``end``) that a sound hint names, None if there is
        none."""
        start = bisect_right(self._hints, position, key=lambda hint: hint.position)
        found = self._first_sound(hint for hint in self._hints[start:] if hint.position < end)
        return None if found is None else found.position

    def cuts(self, start: int, end: int, max_bytes: int) -> Iterator[Hint]:
        """Yield where to cut [``start``, ``end``) into pieces of about ``max_bytes``; a batch begins at each
        cut."""
        while end - start > max_bytes:
            middle = bisect_right(self._hints, start + max_bytes, key=lambda hint: hint.position)
            nearest = chain(
                reversed(self._hints[max(0, middle - _TRIED) : middle]),
                islice(self._hints, middle, middle + _TRIED),
            )
            found = self._first_sound(hint for hint in nearest if start < hint.position < end)
            if found is None:
                return
            start = found.position
            yield found

    def _first_sound(self, hints: Iterable[Hint]) -> Hint | None:
        return next((hint for hint in hints if self._is_sound(hint)), None)

    def _is_sound(self, hint: Hint) -> bool:
        header = sound_batch_at(self._file, hint.position)
        return header is not None and header.last_offset == hint.last_offset


def sound_batch_at(file: LogFile, position: int, due: int = 0) -> BatchHeader | None:
    """Return the header of the batch at a position, None if there is none with a right checksum and an offset
    of at least ``due``."""
    head = file.read(position, HEADER_BYTES)
    if not header_is_there(head, 0):
        return None
    try:
        header = parse_stored_header(head)
    except CorruptMessageError:
        return None
    size = header.size_bytes
    # The header is checked first: searches try millions of positions.
    if header.base_offset < due or size > LARGEST_BATCH_BYTES or position + size > file.end:
        return None
    return header if stored_crc_ok(file.read(position, size), 0, header) else None


def load_offset_hints(files: LogFiles, segment: Segment, file: LogFile) -> OffsetHints:
    """Return the hints of a segment, none if it has no index. Errors of reading the index are raised on first
    use."""
    return OffsetHints(lambda: _rising(files, segment), file)


def _rising(files: LogFiles, segment: Segment) -> Iterator[Hint]:
    """Yield the entries up to the first implausible one; a preallocated file has zeros after the last."""
    entry = OFFSET_ENTRY
    data = read_entries(files, segment, INDEX, entry)
    last = Hint(0, -1)
    for relative, position in entry.iter_unpack(data):
        hint = Hint(position, segment.base_offset + relative)
        if not (relative >= 0 and last.position < position < segment.size_bytes):
            return
        if hint.last_offset <= last.last_offset:
            return
        yield hint
        last = hint


def read_entries(files: LogFiles, segment: Segment, suffix: str, entry: Struct) -> bytes:
    """Return the whole entries of an index, at most as many as the segment can have batches; b"" if it is
    missing.

    Raises:
        KafkaStorageError: the index exists and cannot be read.
    """
    if not segment.others.get(suffix):
        return b""
    most = (segment.size_bytes // SMALLEST_ENTRY_BYTES + 1) * entry.size
    data = files.read_start(segment.stem + suffix, most) or b""
    return data[: len(data) // entry.size * entry.size]


class LatestTime(NamedTuple):
    """An entry of a time index: a timestamp, and the last offset of the first batch that has it."""

    timestamp_ms: int
    last_offset: int


class TimeHints:
    """The time index of one segment: entries (timestamp, last offset of the first batch that has it)."""

    def __init__(self, entries: Iterable[LatestTime]) -> None:
        self._entries = list(entries)

    @property
    def latest(self) -> LatestTime | None:
        """The last entry, None without entries: in a closed segment its largest timestamp."""
        return self._entries[-1] if self._entries else None

    def offset_before(self, timestamp_ms: int) -> int | None:
        """Return an offset up to which no record is as late as ``timestamp_ms``; None if no entry has one."""
        slot = bisect_left(self._entries, timestamp_ms, key=lambda entry: entry.timestamp_ms)
        return self._entries[slot - 1].last_offset if slot else None


def load_time_hints(files: LogFiles, segment: Segment) -> TimeHints:
    """Return the entries of a time index, none if it is missing or not in the form that a broker writes.

    Raises:
        KafkaStorageError: the index exists and cannot be read.
    """
    entry = TIME_ENTRY
    data = read_entries(files, segment, TIME_INDEX, entry)
    count = -(-len(data.rstrip(b"\0")) // entry.size)
    entries = [
        LatestTime(timestamp, segment.base_offset + relative)
        for timestamp, relative in entry.iter_unpack(data[: count * entry.size])
    ]
    rises = all(
        one.timestamp_ms < other.timestamp_ms and one.last_offset <= other.last_offset
        for one, other in pairwise(entries)
    )
    return TimeHints(entries if rises else [])
