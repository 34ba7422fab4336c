"""Which of the oldest segments are removed: below the log start, by size, by age. A table of predicates.

The rules and their order are those of Kafka's ``UnifiedLog.deleteOldSegments``: each policy takes segments
from the oldest on as long as its predicate holds, and the next policy starts behind those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from splashdam.storage.segments.segment import LogSegment
from splashdam.storage.settings import LogSettings


class SegmentFacts(NamedTuple):
    """What a predicate knows of one segment.

    Attributes:
        base_offset: the segment's base offset.
        end_offset: base offset of the next segment; for the active one the log end offset.
        size_bytes: size of its ``.log``.
        largest_timestamp: of its records, or of the file if they have none. A function, because a segment
            that has not been read yet has to be searched for it.
        is_active: whether it is the active segment.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    largest_timestamp: Callable[[], int]
    is_active: bool


class LogFacts(NamedTuple):
    """What a predicate knows of the log.

    Attributes:
        settings: the options of the topic.
        log_start_offset: the first offset that may be read.
        high_watermark: nothing at or above it may be removed.
        size_bytes: size of the rest of the log, the segment in question included.
        wall_ms: wall clock, milliseconds since the epoch.
    """

    settings: LogSettings
    log_start_offset: int
    high_watermark: int
    size_bytes: int
    wall_ms: int


class RetentionPolicy(NamedTuple):
    """One reason to remove segments.

    Attributes:
        reason: for the log line.
        applies: whether the topic's options ask for it.
        is_breached: whether the oldest segment that is left has to be removed.
    """

    reason: str
    applies: Callable[[LogSettings], bool]
    is_breached: Callable[[SegmentFacts, LogFacts], bool]


def _below_log_start(segment: SegmentFacts, log: LogFacts) -> bool:
    return not segment.is_active and segment.end_offset <= log.log_start_offset


def _beyond_size(segment: SegmentFacts, log: LogFacts) -> bool:
    return log.size_bytes - log.settings.retention_bytes >= segment.size_bytes


def _too_old(segment: SegmentFacts, log: LogFacts) -> bool:
    return log.wall_ms - segment.largest_timestamp() > log.settings.retention_ms


RETENTION_POLICIES = (
    RetentionPolicy("it is below the log start offset", lambda _: True, _below_log_start),
    RetentionPolicy(
        "the log is above retention.bytes", lambda topic: topic.is_deleted and topic.retention_bytes >= 0,
        _beyond_size,
    ),
    RetentionPolicy(
        "it is older than retention.ms", lambda topic: topic.is_deleted and topic.retention_ms >= 0, _too_old
    ),
)  # fmt: skip


def expired_segments(segments: Sequence[SegmentFacts], log: LogFacts) -> list[str]:
    """Return a reason for each segment to remove, from the oldest on."""
    reasons: list[str] = []
    for policy in RETENTION_POLICIES:
        if not policy.applies(log.settings):
            continue
        for segment in segments[len(reasons) :]:
            if segment.end_offset > log.high_watermark or (segment.is_active and not segment.size_bytes):
                break
            if not policy.is_breached(segment, log):
                break
            reasons.append(policy.reason)
            log = log._replace(size_bytes=log.size_bytes - segment.size_bytes)
    return reasons


def reasons_to_go(
    segments: Sequence[LogSegment],
    log_end_offset: int,
    largest_timestamp: Callable[[LogSegment], int],
    log: LogFacts,
) -> list[str]:
    """Return what ``expired_segments`` says of the segments of a log, the active one last.

    Raises:
        KafkaStorageError: a segment cannot be read.
    """
    ends = [*(segment.base_offset for segment in segments[1:]), log_end_offset]
    facts = [
        SegmentFacts(
            segment.base_offset,
            end,
            segment.size_bytes,
            partial(largest_timestamp, segment),
            segment is segments[-1],
        )
        for segment, end in zip(segments, ends, strict=True)
    ]
    return expired_segments(facts, log)
