"""What a cleaning would remove: its two passes over the log, without a copy.

The decisions are those of the cleaning itself: ``map_keys`` and ``BatchFilter``.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import pairwise

import attrs

from splashdam.record.batch import MAGIC
from splashdam.record.damage import DamagedError
from splashdam.record.kernel import OffsetMap
from splashdam.record.reader import iter_records
from splashdam.storage.background import Now
from splashdam.storage.cleaning.batch_filter import BatchFilter, CleanedTransactions, last_of_producers
from splashdam.storage.cleaning.cleaning import (
    Cleanable,
    CleaningFigures,
    Source,
    corrupt,
    map_keys,
    map_size,
    sound_batches,
)
from splashdam.storage.files.disk import Files
from splashdam.storage.settings import DirectorySettings


@attrs.define
class Rehearsed:
    """What was found so far.

    Attributes:
        figures: bytes and records before and after.
        keys: how many different ones the dirty part has.
        end_offset: how far the map of keys reaches.
        removed: offset and key of the first records that would go.
        is_whole: whether everything was read.
    """

    figures: CleaningFigures = attrs.field(factory=CleaningFigures)
    keys: int = 0
    end_offset: int = 0
    removed: list[tuple[int, bytes | None]] = attrs.field(factory=list)
    is_whole: bool = True


class Rehearsal:
    """Goes through a cleaning. Made on the loop; ``run`` reads files of its own, in a thread.

    Args:
        files: the file system.
        target: what there is to clean.
        settings: of the data directory.
        now: when it would begin.
        most_bytes: it reads no more than this, in both passes together.
        examples: so many removed records are kept.

    Attributes:
        found: so far, also if ``run`` raises.
    """

    def __init__(
        self,
        files: Files,
        target: Cleanable,
        settings: DirectorySettings,
        now: Now,
        *,
        most_bytes: int,
        examples: int,
    ) -> None:
        log = target.log
        self._files = files
        self._target = target
        self.found = Rehearsed()
        self._left = most_bytes
        self._examples = examples
        closed = list(pairwise(log.segments))
        self._segments = [
            (each.paths()[0], each.base_offset, after.base_offset)
            for each, after in closed
            if each.base_offset < target.first_uncleanable
        ]
        slots, limit = map_size(settings, target.first_uncleanable - target.first_dirty)
        self._map = OffsetMap(slots, limit)
        start = log.segments[0].base_offset
        self._aborted = log.aborted_transactions(start, target.first_uncleanable)
        self._producers = last_of_producers(log.producers)
        self._wall_ms = now.wall_ms
        self._horizon_ms = now.wall_ms + log.settings.delete_retention_ms

    def run(self) -> Rehearsed:
        """Return what would be removed.

        Raises:
            CorruptMessageError: a segment is damaged.
            UnsupportedCodecError: the library for a codec is not installed.
            KafkaStorageError: a segment cannot be read.
        """
        found = self.found
        found.end_offset = self._map_keys(found)
        found.keys = len(self._map)
        if found.is_whole:
            self._filter(found)
        return found

    def _map_keys(self, found: Rehearsed) -> int:
        target = self._target
        sources = [Source(path, end) for path, _, end in self._segments if end > target.first_dirty]
        steps = map_keys(
            self._files,
            sources,
            self._map,
            transactions=CleanedTransactions(self._aborted),
            first_dirty=target.first_dirty,
            bytes_at_once=1 << 20,
        )
        return self._within_limit(steps, found) or target.first_dirty

    def _within_limit(self, steps: Generator[int, None, int], found: Rehearsed) -> int | None:
        while True:
            try:
                self._left -= next(steps)
            except StopIteration as end:
                return int(end.value)
            if self._left < 0:
                steps.close()
                found.is_whole = False
                return None

    def _filter(self, found: Rehearsed) -> None:
        batches = BatchFilter(
            self._map,
            found.end_offset - 1,
            CleanedTransactions(self._aborted),
            self._producers,
            self._target.first_uncleanable,
            self._wall_ms,
            self._horizon_ms,
        )
        figures = found.figures
        for path, base_offset, _ in self._segments:
            if base_offset >= found.end_offset:
                return
            figures.segments_before += 1
            for header, batch in sound_batches(self._files, path):
                self._left -= header.size_bytes
                if self._left < 0:
                    found.is_whole = False
                    return
                try:
                    left = batches.kept(header, batch)
                except DamagedError as error:
                    raise corrupt(path, header, error) from None
                figures.bytes_before += header.size_bytes
                figures.records_before += max(0, header.record_count)
                kept: Sequence[int] = ()
                if left is batch:
                    figures.bytes_after += header.size_bytes
                    figures.records_after += max(0, header.record_count)
                    continue
                if left is not None:
                    figures.bytes_after += len(left)
                    kept = [record.offset for record in iter_records(left)]
                    figures.records_after += len(kept)
                if header.magic == MAGIC and not header.is_control:
                    self._note(found, batch, frozenset(kept))

    def _note(self, found: Rehearsed, batch: memoryview, kept: frozenset[int]) -> None:
        if len(found.removed) >= self._examples:
            return
        for record in iter_records(batch):
            if record.offset not in kept and len(found.removed) < self._examples:
                found.removed.append((record.offset, record.key))
