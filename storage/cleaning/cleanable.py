"""How far a log can be cleaned, whether that is worth it, and which log comes first."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from splashdam.model.options import MAX_LONG
from splashdam.storage.log import Log
from splashdam.storage.segments.segment import LogSegment


class Cleanable(NamedTuple):
    """What there is to clean in a log.

    Attributes:
        log: the log.
        first_dirty: everything below was cleaned before.
        first_uncleanable: base of the first segment that must stay as it is for now.
        clean_bytes: of the segments below ``first_dirty``.
        dirty_bytes: of those from there up to ``first_uncleanable``.
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
        """Share of the bytes that was never cleaned."""
        return self.dirty_bytes / ((self.clean_bytes + self.dirty_bytes) or 1)

    @property
    def is_due(self) -> bool:
        """Whether the log is dirty enough, or has been dirty for too long."""
        return self.dirty_bytes > 0 and (
            self.is_overdue or self.dirty_ratio > self.log.settings.min_cleanable_dirty_ratio
        )


def cleanable_of(log: Log, checkpointed: int | None, wall_ms: int) -> Cleanable:
    """Looks at one log.

    Args:
        log: an open log of a compacted topic.
        checkpointed: where the last cleaning ended, None where there was none; an offset that the log does
            not have counts as none.
        wall_ms: wall clock, milliseconds since the epoch.

    Raises:
        KafkaStorageError: a segment cannot be read.
        CorruptMessageError: the first batch of one is damaged.
    """
    start, end = log.log_start_offset, log.log_end_offset
    first_dirty = start if checkpointed is None or not start <= checkpointed <= end else checkpointed
    dirty = [segment for segment in closed_segments_from(log, first_dirty) if segment.size_bytes]
    first_uncleanable = _first_uncleanable(log, first_dirty, dirty, wall_ms)
    segments = log.segments
    clean = sum(segment.size_bytes for segment in segments if segment.base_offset < first_dirty)
    cleanable = sum(
        segment.size_bytes for segment in segments if first_dirty <= segment.base_offset < first_uncleanable
    )
    overdue = cleanable > 0 and _is_overdue(log, dirty, wall_ms)
    return Cleanable(log, first_dirty, first_uncleanable, clean, cleanable, overdue)


def filthiest(logs: Iterable[Cleanable]) -> Cleanable | None:
    """The log with the largest share of dirty bytes among those that are due."""
    due = [each for each in logs if each.is_due]
    return max(due, key=lambda each: each.dirty_ratio, default=None)


def closed_segments_from(log: Log, offset: int) -> list[LogSegment]:
    """The segments with records at ``offset`` or later, without the active one."""
    segments = log.segments
    return [segment for segment, following in pairwise(segments) if following.base_offset > offset]


def _first_uncleanable(log: Log, first_dirty: int, dirty: list[LogSegment], wall_ms: int) -> int:
    """The base of a segment, or ``first_dirty`` where nothing can be cleaned.

    Not beyond the recovery point: an older record of a key must not go before the newer one is safe.
    """
    bounds = [log.last_stable_offset, log.segments[-1].base_offset, log.recovery_point]
    lag_ms = log.settings.min_compaction_lag_ms
    if lag_ms > 0:
        young = (each.base_offset for each in dirty if log.largest_timestamp(each) > wall_ms - lag_ms)
        bounds += [*young][:1]
    bound = min(bounds)
    bases = [segment.base_offset for segment in log.segments if segment.base_offset <= bound]
    return max(first_dirty, bases[-1] if bases else first_dirty)


def _is_overdue(log: Log, dirty: list[LogSegment], wall_ms: int) -> bool:
    """Whether the oldest of the segments that wait began more than ``max.compaction.lag.ms`` ago."""
    if log.settings.max_compaction_lag_ms == MAX_LONG:
        return False
    began_ms = [timestamp for each in dirty if (timestamp := log.first_timestamp(each)) > 0]
    return min(began_ms, default=wall_ms) < wall_ms - log.settings.max_compaction_lag_ms
