"""One cleaning of one log, in turns: short pieces of work on files.

A turn runs in a thread. Between turns, on the event loop, the cleaning checks that the log still has its
segments, and replaces segments by their copy. So readers and writers never meet a half-changed log, and
nothing is locked. The first pass maps each key of the dirty part to its last offset; the second pass copies.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import attrs

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.record.batch import MAGIC, BatchHeader
from splashdam.record.damage import DamagedError
from splashdam.record.kernel import OffsetMap
from splashdam.record.reader import iter_records, unpack_records
from splashdam.record.stored import parse_stored_header
from splashdam.storage.background import Now
from splashdam.storage.cleaning.batch_filter import BatchFilter, CleanedTransactions, last_of_producers
from splashdam.storage.files.disk import Files
from splashdam.storage.log import Log, LogState
from splashdam.storage.segments.batch_scan import iter_sound_batches
from splashdam.storage.segments.indexes import MAX_RELATIVE_OFFSET
from splashdam.storage.segments.segment import CLEANED, LogSegment
from splashdam.storage.settings import DirectorySettings, LogSettings

SLOT_BYTES = 24  # offset_map.SLOT_BYTES; that module is not there for whoever has the compiled twin


class Cleanable(NamedTuple):
    """What there is to clean in a log.

    Attributes:
        log: the log.
        first_dirty: everything below it was cleaned before.
        first_uncleanable: base offset of the first segment that must not be cleaned yet.
        clean_bytes: size of the segments below ``first_dirty``.
        dirty_bytes: size of the segments from ``first_dirty`` to ``first_uncleanable``.
        is_overdue: ``max.compaction.lag.ms`` demands a cleaning.
    """

    log: Log
    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """The share of bytes that have never been cleaned."""
        return self.dirty_bytes / ((self.clean_bytes + self.dirty_bytes) or 1)

    @property
    def is_due(self) -> bool:
        """Whether the log is dirty enough, or has been dirty for too long."""
        return self.dirty_bytes > 0 and (
            self.is_overdue or self.dirty_ratio > self.log.settings.min_cleanable_dirty_ratio
        )


class CleaningAbortedError(Exception):
    """The log was closed, truncated or lost segments meanwhile. Only the cleaner sees this error."""


@attrs.define
class CleaningFigures:
    """Bytes, records and segments of the copied part so far, before and after the cleaning."""

    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    segments_before: int = 0
    segments_after: int = 0


class Turn:
    """A piece of work on files, to be called in a thread; returns the number of bytes read and written."""

    def __init__(self, steps: Generator[int, None, int]) -> None:
        self._steps = steps
        self.result: int | None = None
        """The result of the steps, once they have ended."""

    def __call__(self) -> int:
        try:
            return next(self._steps)
        except StopIteration as end:
            self.result = end.value
            return 0


class Cleaning:
    """One cleaning. The cleaner takes one of ``turns`` after the other and calls each in a thread.

    Attributes:
        target: the log and its part to clean.
        next_dirty: the first dirty offset for the next cleaning; final after the last turn.
        figures: for the log line.
        keys: the number of keys in the map, and its limit.
    """

    def __init__(self, files: Files, target: Cleanable, settings: DirectorySettings, began: Now) -> None:
        self.target = target
        self.began = began
        self.next_dirty = target.first_dirty
        self.figures = CleaningFigures()
        self._files = files
        self._log = target.log
        self._truncations = target.log.truncations
        self._bytes_at_once = settings.log_cleaner_io_buffer_size
        self._legacy_horizon_ms = _legacy_horizon_ms(target)
        slots, self._limit = map_size(settings, target.first_uncleanable - target.first_dirty)
        self._map = OffsetMap(slots, self._limit)
        self._unfinished_copy: LogSegment | None = None

    @property
    def keys(self) -> tuple[int, int]:
        return len(self._map), self._limit

    def turns(self) -> Generator[Turn, None, None]:
        """Yield the work, turn by turn.

        Raises:
            CleaningAbortedError: the log was closed, truncated or lost segments.
            KafkaStorageError: the disk refuses to put a copy into place. A turn raises KafkaStorageError,
                CorruptMessageError or UnsupportedCodecError when it is called.
        """
        self.next_dirty = yield from self._map_keys()
        # Never the active segment: after a DeleteRecords inside it, its base is below the log start offset.
        segments = [each for each in self._log.segments[:-1] if each.base_offset < self.next_dirty]
        batches = self._filter(segments)
        for group in group_segments(segments, self._log.settings, self.target.first_uncleanable):
            self._log.swapper.finish()  # first: files that it has to remove may have the names of the copy
            cleaned = LogSegment(
                self._files,
                self._log.directory,
                group[0].base_offset,
                self._log.settings,
                self.began.wall_ms,
                suffix=CLEANED,
            )
            self._unfinished_copy = cleaned
            yield from self._in_turns(self._copy(group, cleaned, batches), group)
            self._check(group)
            if self._log.needs_flush:
                # The swap syncs the directory. Without this flush a power cut could leave the name of a later
                # segment, and not the bytes of the ones before it.
                self._log.flush()
            self._unfinished_copy = None  # from here on the log's swapper is responsible for it
            delay_ms = self._log.settings.file_delete_delay_ms
            self._log.swapper.swap_in(group, cleaned, self.began.now_ms + delay_ms)

    def discard(self) -> None:
        """Remove the incomplete copy of an aborted cleaning.

        Raises:
            KafkaStorageError: the disk refuses; the next start removes it.
        """
        half_made, self._unfinished_copy = self._unfinished_copy, None
        if half_made is not None:
            half_made.delete()

    def _in_turns(
        self, steps: Generator[int, None, int], sources: Sequence[LogSegment]
    ) -> Generator[Turn, None, int]:
        turn = Turn(steps)
        try:
            while turn.result is None:
                self._check(sources)
                yield turn
        finally:
            steps.close()
        return turn.result

    def _check(self, sources: Sequence[LogSegment]) -> None:
        if self._log.state is not LogState.OPEN:
            raise CleaningAbortedError(f"the log of {self._log.topic_partition} is {self._log.state.value}")
        if self._log.truncations != self._truncations:  # a copy would bring back what was cut off
            raise CleaningAbortedError(f"the log of {self._log.topic_partition} was truncated")
        there = set(self._log.segments)
        for source in sources:
            if source not in there:
                raise CleaningAbortedError(f"{source} was removed")

    # --- first pass -----------------------------------------------------------------------------------------

    def _map_keys(self) -> Generator[Turn, None, int]:
        first, end = self.target.first_dirty, self.target.first_uncleanable
        dirty = [each for each in closed_segments_from(self._log, first) if each.base_offset < end]
        if not dirty:
            return first
        ends = [*(segment.base_offset for segment in dirty[1:]), end]
        sources = [Source(segment.paths()[0], until) for segment, until in zip(dirty, ends, strict=True)]
        walked = CleanedTransactions(self._log.aborted_transactions(dirty[0].base_offset, end))
        steps = map_keys(
            self._files,
            sources,
            self._map,
            transactions=walked,
            first_dirty=first,
            bytes_at_once=self._bytes_at_once,
        )
        return (yield from self._in_turns(steps, dirty))

    # --- second pass ----------------------------------------------------------------------------------------

    def _filter(self, segments: Sequence[LogSegment]) -> BatchFilter:
        end, settings = self.target.first_uncleanable, self._log.settings
        aborted = self._log.aborted_transactions(segments[0].base_offset, end) if segments else []
        return BatchFilter(
            self._map,
            self.next_dirty - 1,
            CleanedTransactions(aborted),
            last_of_producers(self._log.producers),
            end,
            self.began.wall_ms,
            self.began.wall_ms + settings.delete_retention_ms,
        )

    def _copy(
        self, group: Sequence[LogSegment], cleaned: LogSegment, batches: BatchFilter
    ) -> Generator[int, None, int]:
        # An aborted cleaning or a crash may have left files of these names.
        cleaned.delete()
        cleaned.create()
        moved = 0
        for source in group:
            path = source.paths()[0]
            batches.keeps_legacy_tombstones = source.modified_ms > self._legacy_horizon_ms
            for header, batch in sound_batches(self._files, path):
                try:
                    left = batches.kept(header, batch)
                except DamagedError as error:
                    raise corrupt(path, header, error) from None
                moved += header.size_bytes
                self.figures.bytes_before += header.size_bytes
                self.figures.records_before += max(0, header.record_count)
                if left is not None:
                    new = header if left is batch else parse_stored_header(left)
                    cleaned.append((left,), new.base_offset, new.last_offset, new.max_timestamp)
                    moved += new.size_bytes
                    self.figures.bytes_after += new.size_bytes
                    self.figures.records_after += max(0, new.record_count)
                if moved >= self._bytes_at_once:
                    yield moved
                    moved = 0
        self._complete(group, cleaned, batches)
        yield moved
        return cleaned.base_offset

    def _complete(self, group: Sequence[LogSegment], cleaned: LogSegment, batches: BatchFilter) -> None:
        for aborted in batches.transactions.take_aborted():
            cleaned.txn_index.append(aborted)
        cleaned.append_final_time_entry()
        for file in cleaned.unsynced_files():
            file.sync_now()
        cleaned.release()
        # As in Kafka: where records have no timestamps, retention goes by this time.
        self._files.set_modified_ms(cleaned.paths()[0], group[-1].modified_ms)
        self.figures.segments_before += len(group)
        self.figures.segments_after += 1


def closed_segments_from(log: Log, offset: int) -> list[LogSegment]:
    """The segments with records at ``offset`` or later, without the active one."""
    segments = log.segments
    return [segment for segment, following in pairwise(segments) if following.base_offset > offset]


def _legacy_horizon_ms(target: Cleanable) -> int:
    """Return the time up to which segments of formats 0 and 1 were written whose tombstones may go."""
    log = target.log
    clean = [each for each in log.segments if each.base_offset < target.first_dirty]
    # Formats 0 and 1 have no delete horizon: as in Kafka, the time of the last cleaned segment stands for it.
    return clean[-1].modified_ms - log.settings.delete_retention_ms if clean else 0


def map_size(settings: DirectorySettings, offsets: int) -> tuple[int, int]:
    """Return the slots of the map for a number of dirty offsets, and the number of keys it may hold."""
    load = settings.log_cleaner_io_buffer_load_factor
    slots = max(2, min(settings.log_cleaner_dedupe_buffer_size // SLOT_BYTES, int(offsets / load) + 2))
    return slots, max(1, min(slots - 1, int(slots * load)))


def group_segments(
    segments: Sequence[LogSegment], settings: LogSettings, first_uncleanable: int
) -> list[list[LogSegment]]:
    """Return groups of segments that become one segment each, in the order of their offsets.

    Args:
        segments: neighbouring segments.
        settings: the options of the log.
        first_uncleanable: where the last of ``segments`` ends.
    """
    groups: list[list[LogSegment]] = []
    ends = [*(segment.base_offset for segment in segments), first_uncleanable][1:]
    sizes: tuple[int, ...] = (0, 0, 0)
    limits = (settings.segment_bytes, settings.segment_index_bytes, settings.segment_index_bytes)
    for segment, end in zip(segments, ends, strict=True):
        own = (
            segment.size_bytes,
            segment.offset_index.file.size_bytes or 0,
            segment.time_index.file.size_bytes or 0,
        )
        together = tuple(one + other for one, other in zip(sizes, own, strict=True))
        if (
            groups
            and all(size <= limit for size, limit in zip(together, limits, strict=True))
            # An empty segment joins at any offset, or a log of which nothing is left would keep one segment
            # for every 2^31 offsets.
            and (not own[0] or end - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        ):
            groups[-1].append(segment)
            sizes = together
        else:
            groups.append([segment])
            sizes = own
    return groups


class Source(NamedTuple):
    """A segment to read: the path of its ``.log``, and the base offset of the next segment."""

    path: str
    end_offset: int


_ALL_IN = -1


def map_keys(
    files: Files,
    sources: Sequence[Source],
    offset_map: OffsetMap,
    *,
    transactions: CleanedTransactions,
    first_dirty: int,
    bytes_at_once: int,
) -> Generator[int, None, int]:
    """Fill ``offset_map`` until it is full or has all keys; yield the bytes read, about ``bytes_at_once``.

    Control records and records of aborted transactions do not count.

    Returns:
        The offset up to which the map covers the log.

    Raises:
        CorruptMessageError: a segment is damaged.
        UnsupportedCodecError: the library for a codec is not installed.
        KafkaStorageError: a segment cannot be read.
    """
    read, known_up_to = 0, first_dirty
    for source in sources:
        for header, batch in sound_batches(files, source.path):
            try:
                no_room = _put(offset_map, transactions, header, batch, first_dirty)
            except DamagedError as error:
                raise corrupt(source.path, header, error) from None
            if no_room != _ALL_IN:
                return no_room
            read += header.size_bytes
            if read >= bytes_at_once:
                yield read
                read = 0
        known_up_to = source.end_offset  # also for offsets that no batch has
        yield read
        read = 0
    return known_up_to


def _put(
    offset_map: OffsetMap,
    transactions: CleanedTransactions,
    header: BatchHeader,
    batch: memoryview,
    first_dirty: int,
) -> int:
    """Add the keys of a batch; return the offset of the first that found no room, or ``_ALL_IN``."""
    if header.magic != MAGIC:
        for record in iter_records(batch):
            is_news = record.key is not None and record.offset >= first_dirty
            if is_news and not offset_map.put(record.key or b"", record.offset):
                return record.offset
        return _ALL_IN
    if header.is_control:
        transactions.on_marker(header, batch)
        return _ALL_IN
    # ``on_data`` comes first, because it has to see every batch.
    if transactions.on_data(header) or header.last_offset < first_dirty or not header.record_count:
        return _ALL_IN
    return offset_map.put_records(
        unpack_records(batch, 0, header),
        header.record_count,
        base_offset=header.base_offset,
        first_offset=first_dirty,
    )


def sound_batches(files: Files, path: str) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield every batch of a closed segment, after checking its checksum.

    The segment is read through an own file, because the log may close or rename its file meanwhile. A batch
    is valid until the next one is requested.

    Raises:
        CorruptMessageError: the file has other bytes than whole batches with right checksums.
        KafkaStorageError: the file cannot be read.
    """
    file = files.open_log(path)
    try:
        end = 0
        for position, header, batch in iter_sound_batches(file):
            yield header, batch
            end = position + header.size_bytes
        if end != file.end:
            raise CorruptMessageError(f"{path}, position {end}: no whole batch with a right checksum")
    finally:
        file.close()


def corrupt(path: str, header: BatchHeader, error: DamagedError) -> CorruptMessageError:
    """Return the error for a batch with a right checksum and damaged records."""
    return CorruptMessageError(f"{path}: batch at offset {header.base_offset}: {error}")
