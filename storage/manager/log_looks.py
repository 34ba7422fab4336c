"""Looks at the logs of a broker, for its console. Retention and cleaner say themselves what they will do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

import attrs
import trio

from splashdam.model.broker_errors import BrokerResponseError, CorruptMessageError, KafkaStorageError
from splashdam.model.errors import UnsupportedCodecError, message_of
from splashdam.model.values import TopicPartition
from splashdam.model.views.log import (
    BatchContents,
    CleaningForecast,
    CleaningView,
    LogView,
    RemovedRecord,
    RetentionView,
    SegmentContents,
    SegmentView,
    StoredBatchView,
)
from splashdam.record.batch import CODEC_MASK, BatchHeader, Codec
from splashdam.record.stored import parse_stored_header, stored_crc_ok
from splashdam.storage.background import Now
from splashdam.storage.cleaning.cleaning import Cleanable
from splashdam.storage.cleaning.rehearsal import Rehearsal
from splashdam.storage.inspect.fields import fields_of
from splashdam.storage.log import Log
from splashdam.storage.manager.housekeeping import COMPACTION, OLD_SEGMENTS
from splashdam.storage.manager.log_manager import LogManager
from splashdam.storage.segments.batch_scan import iter_headers
from splashdam.storage.segments.segment import LogSegment

_SEGMENTS_AT_AN_END = 100
_DATED_SEGMENTS = 40
"""So many of the oldest segments are asked for their largest timestamp: the answer may open their files."""
_INDEX_ENTRIES = 60
_BATCHES = 50
_BATCH_BYTES = 2048
_FORECAST_BYTES = 256 * 1024 * 1024
_REMOVED_RECORDS = 50

_SETTINGS = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "segment.bytes",
    "segment.ms",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "delete.retention.ms",
    "index.interval.bytes",
)
"""What decides what becomes of segments."""


class LogLooks:
    """Implements ``model.views.log.Logs``. Belongs to the broker's loop.

    Args:
        manager: has the logs.
        now: the monotonic and the wall clock.
    """

    def __init__(self, manager: LogManager, now: Callable[[], Now]) -> None:
        self._manager = manager
        self._now = now
        self._forecasting = trio.Lock()

    def partitions(self) -> Sequence[TopicPartition]:
        """Return the partitions that have a log here, the largest first."""
        logs = self._manager.logs
        return sorted(logs, key=lambda each: (-logs[each].size_bytes, each))

    def log(self, where: TopicPartition) -> LogView | None:
        """Return a log; None if there is none."""
        log = self._manager.logs.get(where)
        if log is None or log.is_closed:
            return None
        now = self._now()
        cleaning, target = self._cleaning(log, now)
        segments = _segments(log, now.wall_ms, target)
        return LogView(
            topic_partition=where,
            taken_ms=now.wall_ms,
            directory=log.directory,
            log_start_offset=log.log_start_offset,
            end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            recovery_point=log.recovery_point,
            size_bytes=log.size_bytes,
            segments=tuple(segments),
            segment_count=len(log.segments),
            settings=tuple((name, str(getattr(log.settings, name.replace(".", "_")))) for name in _SETTINGS),
            retention=self._retention(log, now),
            cleaning=cleaning,
        )

    def _retention(self, log: Log, now: Now) -> RetentionView:
        reasons = _reasons(log, now.wall_ms)
        kept = log.segments[len(reasons) :]
        return RetentionView(
            check_in_ms=self._manager.housekeeping.due_in_ms(OLD_SEGMENTS, now.now_ms),
            removes_segments=len(reasons),
            removes_bytes=sum(each.size_bytes for each in log.segments[: len(reasons)]),
            next_segment=kept[0].base_offset if kept else None,
            next_at_ms=_next_at_ms(log, kept[0], len(reasons), now.wall_ms) if kept else None,
        )

    def _cleaning(self, log: Log, now: Now) -> tuple[CleaningView | None, Cleanable | None]:
        if not log.settings.is_compacted:
            return None, None
        cleaner = self._manager.cleaner
        due_ms = self._manager.housekeeping.due_in_ms(COMPACTION, now.now_ms)
        hindrance = cleaner.hindrance(log)
        target = None
        if hindrance is None:
            try:
                target = cleaner.cleanable(log, now.wall_ms)
            except BrokerResponseError as error:
                hindrance = message_of(error)
        view = CleaningView(
            work_in_ms=None if math.isinf(due_ms) else due_ms,
            hindrance=hindrance,
            is_running=cleaner.is_cleaning(log),
            due_ratio=log.settings.min_cleanable_dirty_ratio,
        )
        if target is None:
            return view, None
        return attrs.evolve(
            view,
            is_due=target.is_due,
            is_overdue=target.is_overdue,
            first_dirty=target.first_dirty,
            first_uncleanable=target.first_uncleanable,
            clean_bytes=target.clean_bytes,
            dirty_bytes=target.dirty_bytes,
            dirty_ratio=target.dirty_ratio,
        ), target

    async def segment(
        self, where: TopicPartition, base_offset: int, from_offset: int
    ) -> SegmentContents | None:
        """Return what is in a segment; None if there is none."""
        log = self._manager.logs.get(where)
        found = None if log is None else next((s for s in log.segments if s.base_offset == base_offset), None)
        if log is None or found is None:
            return None
        _, target = self._cleaning(log, self._now())
        view = _segment(log, log.segments.index(found), target, _reasons(log, self._now().wall_ms))
        index, times = found.offset_index, found.time_index
        contents = SegmentContents(
            segment=view,
            index=tuple(index.sample(_INDEX_ENTRIES)),
            index_entries=len(index),
            time_index=tuple(times.sample(_INDEX_ENTRIES)),
            time_index_entries=len(times),
            batches=(),
            next_offset=None,
        )
        start = index.lookup(max(from_offset, base_offset))
        path, end = found.paths()[0], found.size_bytes
        try:
            batches, next_offset = await self._manager.files.run(
                partial(self._batches, path, start, end, from_offset)
            )
        except (KafkaStorageError, CorruptMessageError) as error:
            return attrs.evolve(contents, problem=message_of(error))
        return attrs.evolve(contents, batches=tuple(batches), next_offset=next_offset)

    def _batches(
        self, path: str, position: int, end: int, from_offset: int
    ) -> tuple[list[StoredBatchView], int | None]:
        file = self._manager.files.open_log(path)
        try:
            wanted = (
                _batch(at, header)
                for at, header in iter_headers(file, position)
                if at < end and header.last_offset >= from_offset
            )
            found = list(islice(wanted, _BATCHES + 1))
        finally:
            file.close()
        return found[:_BATCHES], found[_BATCHES].base_offset if len(found) > _BATCHES else None

    async def batch(self, where: TopicPartition, offset: int) -> BatchContents | None:
        """Return the batch that holds an offset; None if there is none."""
        log = self._manager.logs.get(where)
        if log is None or not log.segments[0].base_offset <= offset < log.log_end_offset:
            return None
        segment = next(each for each in reversed(log.segments) if each.base_offset <= offset)
        start = segment.offset_index.lookup(offset)
        return await self._manager.files.run(partial(self._bytes, segment.paths()[0], start, offset))

    def _bytes(self, path: str, position: int, offset: int) -> BatchContents | None:
        file = self._manager.files.open_log(path)
        try:
            for at, header in iter_headers(file, position):
                if header.last_offset >= offset:
                    whole = bytes(file.read(at, header.size_bytes))
                    data = whole[:_BATCH_BYTES]
                    return BatchContents(
                        batch=_batch(at, header),
                        data=data,
                        fields=fields_of(header, data),
                        is_sound=stored_crc_ok(whole, 0, parse_stored_header(whole, 0)),
                    )
            return None
        finally:
            file.close()

    async def forecast(self, where: TopicPartition) -> CleaningForecast | None:
        """Return what a cleaning would do now; None if the cleaner would not look at the log."""
        log = self._manager.logs.get(where)
        if log is None or not log.settings.is_compacted:
            return None
        now = self._now()
        _, target = self._cleaning(log, now)
        if target is None:
            return None
        rehearsal = Rehearsal(
            self._manager.files,
            target,
            self._manager.settings,
            now,
            most_bytes=_FORECAST_BYTES,
            examples=_REMOVED_RECORDS,
        )
        problem = None
        try:
            async with self._forecasting:
                found = await self._manager.files.run(rehearsal.run)
        except (KafkaStorageError, CorruptMessageError, UnsupportedCodecError) as error:
            found, problem = rehearsal.found, message_of(error)
        figures = found.figures
        return CleaningForecast(
            first_dirty=target.first_dirty,
            end_offset=found.end_offset,
            keys=found.keys,
            records_before=figures.records_before,
            records_after=figures.records_after,
            bytes_before=figures.bytes_before,
            bytes_after=figures.bytes_after,
            removed=tuple(RemovedRecord(offset=offset, key=key) for offset, key in found.removed),
            is_whole=found.is_whole and problem is None,
            problem=problem,
        )


def _reasons(log: Log, wall_ms: int) -> list[str]:
    try:
        return log.reasons_to_go(wall_ms)
    except KafkaStorageError:
        return []


def _next_at_ms(log: Log, oldest: LogSegment, going: int, wall_ms: int) -> int | None:
    """Return when retention removes the oldest segment that stays: it is asked itself about that time."""
    if not log.settings.is_deleted or log.settings.retention_ms < 0 or not oldest.size_bytes:
        return None
    try:
        due_ms = max(log.largest_timestamp(oldest) + log.settings.retention_ms + 1, wall_ms)
    except KafkaStorageError:
        return None
    return due_ms if len(_reasons(log, due_ms)) > going else None


def _segments(log: Log, wall_ms: int, target: Cleanable | None) -> list[SegmentView]:
    count, reasons = len(log.segments), _reasons(log, wall_ms)
    shown = [
        *range(min(count, _SEGMENTS_AT_AN_END)),
        *range(max(_SEGMENTS_AT_AN_END, count - _SEGMENTS_AT_AN_END), count),
    ]
    return [_segment(log, number, target, reasons) for number in shown]


def _segment(log: Log, number: int, target: Cleanable | None, reasons: Sequence[str]) -> SegmentView:
    segments = log.segments
    segment = segments[number]
    is_active = number == len(segments) - 1
    timestamp_ms = None
    if (number < _DATED_SEGMENTS or is_active) and segment.size_bytes:
        try:
            timestamp_ms = log.largest_timestamp(segment)
        except KafkaStorageError:
            timestamp_ms = None
    return SegmentView(
        base_offset=segment.base_offset,
        end_offset=log.log_end_offset if is_active else segments[number + 1].base_offset,
        size_bytes=segment.size_bytes,
        is_active=is_active,
        largest_timestamp_ms=timestamp_ms,
        removal=reasons[number] if number < len(reasons) else None,
        cleaning=_cleaning_of(segment, target),
    )


def _cleaning_of(segment: LogSegment, target: Cleanable | None) -> str:
    if target is None:
        return ""
    if segment.base_offset >= target.first_uncleanable:
        return "not yet"
    return "cleaned" if segment.base_offset < target.first_dirty else "dirty"


def _batch(position: int, header: BatchHeader) -> StoredBatchView:
    number = header.attributes & CODEC_MASK
    return StoredBatchView(
        position=position,
        size_bytes=header.size_bytes,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        records=max(0, header.record_count),
        codec=Codec(number).name.lower() if number <= Codec.ZSTD else f"unknown ({number})",
        max_timestamp_ms=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
    )
