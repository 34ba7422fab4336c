"""What one sees of a partition's log: frozen values, with units in their names, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs

from splashdam.model.values import TopicPartition


@attrs.frozen(kw_only=True)
class SegmentView:
    """A segment.

    Attributes:
        base_offset: the name of its files.
        end_offset: the base offset of the next one; of the active one the end of the log.
        size_bytes: of its ``.log``.
        is_active: whether appends go there.
        largest_timestamp_ms: what retention goes by; None if it was not looked up (many segments).
        removal: why retention removes it at its next check; None if it stays.
        cleaning: ``cleaned``, ``dirty`` or ``not yet`` of a compacted log, else empty.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    is_active: bool
    largest_timestamp_ms: int | None = None
    removal: str | None = None
    cleaning: str = ""


@attrs.frozen(kw_only=True)
class RetentionView:
    """What retention will do.

    Attributes:
        check_in_ms: until it looks again.
        removes_segments: how many it removes then, from the oldest on.
        removes_bytes: their size.
        next_segment: base offset of the oldest that stays; None if all go.
        next_at_ms: when that one is old enough, in milliseconds since the epoch; None if age does not
            decide.
    """

    check_in_ms: float
    removes_segments: int
    removes_bytes: int
    next_segment: int | None
    next_at_ms: int | None


@attrs.frozen(kw_only=True)
class CleaningView:
    """What the cleaner will do.

    Attributes:
        work_in_ms: until it looks for a log again; None if ``log.cleaner.enable`` is false.
        hindrance: why it does not look at this one; None if it does.
        is_running: whether it cleans this log now.
        is_due: whether the log is dirty enough, or has been dirty for too long.
        is_overdue: whether ``max.compaction.lag.ms`` demands it.
        first_dirty: everything below was cleaned before.
        first_uncleanable: everything from here on stays as it is: it is active, too young, not flushed, or in
            an open transaction.
        clean_bytes: size below ``first_dirty``.
        dirty_bytes: size from there to ``first_uncleanable``.
        dirty_ratio: the share of bytes that have never been cleaned.
        due_ratio: ``min.cleanable.dirty.ratio``.
    """

    work_in_ms: float | None
    hindrance: str | None
    is_running: bool = False
    is_due: bool = False
    is_overdue: bool = False
    first_dirty: int = 0
    first_uncleanable: int = 0
    clean_bytes: int = 0
    dirty_bytes: int = 0
    dirty_ratio: float = 0.0
    due_ratio: float = 0.5


@attrs.frozen(kw_only=True)
class LogView:
    """A partition's log at one moment.

    Attributes:
        topic_partition: which one.
        taken_ms: when, in milliseconds since the epoch.
        directory: where its files are.
        log_start_offset, end_offset: what can be read.
        high_watermark: consumers read below it.
        last_stable_offset: consumers with ``read_committed`` read below it.
        recovery_point: everything below is on stable storage.
        size_bytes: of all segments.
        segments: the oldest first; of more than 200 the first 100 and the last 100.
        segment_count: how many there are.
        settings: those that decide, by Kafka's names.
        retention: what retention will do.
        cleaning: what the cleaner will do; None if the topic is not compacted.
    """

    topic_partition: TopicPartition
    taken_ms: int
    directory: str
    log_start_offset: int
    end_offset: int
    high_watermark: int
    last_stable_offset: int
    recovery_point: int
    size_bytes: int
    segments: tuple[SegmentView, ...]
    segment_count: int
    settings: tuple[tuple[str, str], ...]
    retention: RetentionView
    cleaning: CleaningView | None


@attrs.frozen(kw_only=True)
class StoredBatchView:
    """A batch in a segment.

    Attributes:
        position: where it begins in the ``.log``.
        size_bytes: with its header.
        base_offset, last_offset: of its records.
        records: how many it has.
        codec: of its records.
        max_timestamp_ms: the largest.
        producer_id, producer_epoch, base_sequence: -1 without idempotence.
        is_transactional: it belongs to a transaction.
        is_control: it is a marker.
    """

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    records: int
    codec: str
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool


@attrs.frozen(kw_only=True)
class SegmentContents:
    """The inside of a segment.

    Attributes:
        segment: which one.
        index: offset and position of entries of ``.index``; at most 60, evenly chosen.
        index_entries: how many there are.
        time_index: timestamp and offset of entries of ``.timeindex``, likewise.
        time_index_entries: how many there are.
        batches: at most 50, from the wanted offset on.
        next_offset: of the batch behind them; None if there is none.
        problem: why no more could be read; None if nothing is wrong.
    """

    segment: SegmentView
    index: tuple[tuple[int, int], ...]
    index_entries: int
    time_index: tuple[tuple[int, int], ...]
    time_index_entries: int
    batches: tuple[StoredBatchView, ...]
    next_offset: int | None
    problem: str | None = None


@attrs.frozen(kw_only=True)
class FieldView:
    """A field of a batch, as ``docs/format/record-batch.md`` names it.

    Attributes:
        name: of the field.
        start: its first byte, in the batch.
        size_bytes: its length.
        value: as text.
    """

    name: str
    start: int
    size_bytes: int
    value: str


@attrs.frozen(kw_only=True)
class BatchContents:
    """The bytes of a batch.

    Attributes:
        batch: which one.
        data: its first bytes, at most 2 KiB.
        fields: that cover them, in their order.
        is_sound: whether its checksum is right.
    """

    batch: StoredBatchView
    data: bytes
    fields: tuple[FieldView, ...]
    is_sound: bool


@attrs.frozen(kw_only=True)
class RemovedRecord:
    """A record that a cleaning would remove.

    Attributes:
        offset: of it.
        key: its first bytes; None for a null key.
    """

    offset: int
    key: bytes | None


@attrs.frozen(kw_only=True)
class CleaningForecast:
    """What a cleaning would do now: it was gone through, and nothing was written.

    Attributes:
        first_dirty, end_offset: the part whose keys count.
        keys: how many different ones.
        records_before, records_after: of all segments that would be rewritten.
        bytes_before, bytes_after: likewise.
        removed: the first of the records that would go, at most 50.
        is_whole: whether all of it was read; a forecast ends after 256 MiB.
        problem: why it could not go on; None if nothing is wrong.
    """

    first_dirty: int
    end_offset: int
    keys: int
    records_before: int
    records_after: int
    bytes_before: int
    bytes_after: int
    removed: tuple[RemovedRecord, ...]
    is_whole: bool
    problem: str | None = None


class Logs(Protocol):
    """The logs of a broker, for whoever looks. Each call reads beside the loop, and no more than is shown."""

    def partitions(self) -> Sequence[TopicPartition]:
        """Return the partitions that have a log here, the largest first."""
        ...

    def log(self, where: TopicPartition) -> LogView | None:
        """Return a log; None if there is none."""
        ...

    async def segment(
        self, where: TopicPartition, base_offset: int, from_offset: int
    ) -> SegmentContents | None:
        """Return what is in a segment; None if there is none."""
        ...

    async def batch(self, where: TopicPartition, offset: int) -> BatchContents | None:
        """Return the batch that holds an offset; None if there is none."""
        ...

    async def forecast(self, where: TopicPartition) -> CleaningForecast | None:
        """Return what a cleaning would do now; None if the cleaner would not look at the log."""
        ...
