"""The log cleaner of a broker: which log is cleaned, when, how far, and at which rate.

One log at a time: two cleanings would compete for the same disk and cores, and each would need a map of keys.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Generator, Iterable, Iterator, Mapping

from splashdam.model.broker_errors import CorruptMessageError, KafkaStorageError
from splashdam.model.errors import UnsupportedCodecError
from splashdam.model.options import MAX_LONG
from splashdam.model.values import TopicPartition
from splashdam.storage.background import Now
from splashdam.storage.cleaning.cleaning import (
    Cleanable,
    Cleaning,
    CleaningAbortedError,
    Turn,
    closed_segments_from,
)
from splashdam.storage.directories.checkpoints import CleanerOffsets
from splashdam.storage.files.disk import Files
from splashdam.storage.log import Log, LogState
from splashdam.storage.segments.segment import LogSegment
from splashdam.storage.settings import DirectorySettings

_TURNS_AT_ONCE = 8
"""Turns of a cleaning in one call; then the rest of the housekeeping runs."""

_logger = logging.getLogger(__name__)


class LogCleaner:
    """Cleans one log after the other, the dirtiest first, until none is dirty enough; then it pauses.

    A damaged log is not cleaned again before the broker restarts, because rewriting damage would give it a
    right checksum. A log whose disk refuses something is tried again after the next pause. Other logs go on.

    Args:
        files: the file system.
        settings: the settings of the data directory.
        checkpoint: the first dirty offset of each log.

    Attributes:
        settings: as given; replaced when they change.
    """

    def __init__(self, files: Files, settings: DirectorySettings, checkpoint: CleanerOffsets) -> None:
        self._files = files
        self.settings = settings
        self._checkpoint = checkpoint
        self._cleaning: Cleaning | None = None
        self._turns: Generator[Turn, None, None] | None = None
        self._uncleanable: set[Log] = set()
        self._refused: set[Log] = set()  # since the last pause
        self._pause_ms: float | None = None  # until the next call; None for log.cleaner.backoff.ms

    @property
    def uncleanable(self) -> list[TopicPartition]:
        """The logs that are not cleaned because they are damaged."""
        return sorted(log.topic_partition for log in self._uncleanable)

    def due_ms(self, done_ms: float | None, started_ms: float) -> float:
        """Return when ``work`` is due, given when it last ran (None: never) and when the broker started."""
        if not self.settings.log_cleaner_enable:
            return math.inf
        backoff_ms = self.settings.log_cleaner_backoff_ms
        if done_ms is None:
            return started_ms + min(backoff_ms, self.settings.log_initial_task_delay_ms)
        return done_ms + (backoff_ms if self._pause_ms is None else self._pause_ms)

    async def work(self, logs: Mapping[TopicPartition, Log], now: Now) -> None:
        """Continue the current cleaning, or begin the next one if a log is dirty enough."""
        if self._cleaning is None and not self._begin(logs, now):
            self._pause_ms = None
            self._refused.clear()
            return
        moved = 0
        for _ in range(_TURNS_AT_ONCE):
            if self._cleaning is None:
                break
            moved += await self._turn(self._cleaning, logs, now)
        self._pause_ms = 1_000 * moved // self.settings.log_cleaner_io_max_bytes_per_second

    def is_cleaning(self, log: Log) -> bool:
        """Whether this log is being cleaned."""
        return self._cleaning is not None and self._cleaning.target.log is log

    def close(self) -> None:
        """Abort the current cleaning, if there is one; the next start begins it again."""
        if self._cleaning is not None:
            self._end(self._cleaning)

    def _begin(self, logs: Mapping[TopicPartition, Log], now: Now) -> bool:
        self._uncleanable.intersection_update(logs.values())
        target = filthiest(self._look_at(logs, now.wall_ms))
        if target is None:
            return False
        _logger.info(
            "cleaning %s from offset %d to %d: %d of %d bytes are dirty",
            target.log.topic_partition,
            target.first_dirty,
            target.first_uncleanable,
            target.dirty_bytes,
            target.clean_bytes + target.dirty_bytes,
        )
        self._cleaning = Cleaning(self._files, target, self.settings, now)
        self._turns = self._cleaning.turns()
        return True

    def _look_at(self, logs: Mapping[TopicPartition, Log], wall_ms: int) -> Iterator[Cleanable]:
        compacted = [
            log for log in logs.values() if log.settings.is_compacted and self.hindrance(log) is None
        ]
        checkpointed = self._checkpoint.read() if compacted else {}
        for log in compacted:
            try:
                yield cleanable_of(log, checkpointed.get(log.topic_partition), wall_ms)
            except (CorruptMessageError, KafkaStorageError) as error:
                self._skip(log, error)

    def hindrance(self, log: Log) -> str | None:
        """Return why the log of a compacted topic is not looked at; None if it is."""
        if log.state is not LogState.OPEN:
            return f"the log is {log.state.value}"
        if len(log.segments) < 2:
            return "all records are in the active segment, which is never cleaned"
        if log in self._uncleanable:
            return "the log is damaged; repair it and restart the broker"
        return "its disk refused the last cleaning; it is tried again" if log in self._refused else None

    def cleanable(self, log: Log, wall_ms: int) -> Cleanable:
        """Return what there is to clean in a log that has no hindrance.

        Raises:
            KafkaStorageError, CorruptMessageError: as ``cleanable_of``.
        """
        return cleanable_of(log, self._checkpoint.read().get(log.topic_partition), wall_ms)

    async def _turn(self, cleaning: Cleaning, logs: Mapping[TopicPartition, Log], now: Now) -> int:
        """One turn of work; returns how many bytes it moved."""
        try:
            turn = next(self._turns, None) if self._turns is not None else None
            if turn is not None:
                return await self._files.run(turn)
            self._finish(cleaning, logs, now)
        except (CorruptMessageError, KafkaStorageError, UnsupportedCodecError) as error:
            self._skip(cleaning.target.log, error)
        except CleaningAbortedError as error:
            _logger.info("the cleaning of %s was aborted: %s", cleaning.target.log.topic_partition, error)
        except Exception:
            # A bug would fail the same cleaning again and again, and no other log would be cleaned.
            self._uncleanable.add(cleaning.target.log)
            _logger.exception("the cleaning of %s failed", cleaning.target.log.topic_partition)
        self._end(cleaning)
        return 0

    def _finish(self, cleaning: Cleaning, logs: Mapping[TopicPartition, Log], now: Now) -> None:
        log = cleaning.target.log
        # Its topic may have been deleted meanwhile; a later one of that name must not find this offset.
        if logs.get(log.topic_partition) is log:
            self._checkpoint.write({**self._checkpoint.read(), log.topic_partition: cleaning.next_dirty})
        done, (keys, limit) = cleaning.figures, cleaning.keys
        _logger.info(
            "cleaned %s up to offset %d in %.1f s: %d segments, %d bytes, %d records became %d, %d, %d; "
            "the map has %d keys, of at most %d",
            log.topic_partition,
            cleaning.next_dirty,
            (now.now_ms - cleaning.began.now_ms) / 1_000,
            done.segments_before,
            done.bytes_before,
            done.records_before,
            done.segments_after,
            done.bytes_after,
            done.records_after,
            keys,
            limit,
        )

    def _skip(self, log: Log, error: Exception) -> None:
        if isinstance(error, KafkaStorageError):
            self._refused.add(log)
            _logger.warning(
                "%s could not be cleaned and is tried again later: %s", log.topic_partition, error.message
            )
        else:
            self._uncleanable.add(log)
            _logger.warning(
                "%s is damaged, not cleaned any more, and will grow; repair it and restart the broker: %s",
                log.topic_partition,
                error,
            )

    def _end(self, cleaning: Cleaning) -> None:
        self._cleaning = None
        turns, self._turns = self._turns, None
        try:
            if turns is not None:
                turns.close()
            cleaning.discard()
        except KafkaStorageError as error:
            _logger.warning("%s; the next start removes the unfinished copy", error.message)


# --- which log, and how far ---------------------------------------------------------------------------------


def cleanable_of(log: Log, checkpointed: int | None, wall_ms: int) -> Cleanable:
    """Return what there is to clean in a log.

    Args:
        log: an open log of a compacted topic.
        checkpointed: where the last cleaning ended, or None; an offset outside the log counts as None.
        wall_ms: wall clock, milliseconds since the epoch.

    Raises:
        KafkaStorageError: a segment cannot be read.
        CorruptMessageError: the first batch of a segment is damaged.
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
    """Return the due log with the largest share of dirty bytes, Kafka's filthiest log."""
    due = [each for each in logs if each.is_due]
    return max(due, key=lambda each: each.dirty_ratio, default=None)


def _first_uncleanable(log: Log, first_dirty: int, dirty: list[LogSegment], wall_ms: int) -> int:
    """Return the base offset of a segment, or ``first_dirty`` if nothing can be cleaned."""
    # Not beyond the recovery point: if the older record of a key went before the newer one is on stable
    # storage, a power cut could lose both. (Kafka flushes closed segments in the background and does not wait
    # for it.)
    bounds = [log.last_stable_offset, log.segments[-1].base_offset, log.recovery_point]
    lag_ms = log.settings.min_compaction_lag_ms
    if lag_ms > 0:
        young = (each.base_offset for each in dirty if log.largest_timestamp(each) > wall_ms - lag_ms)
        bounds += [*young][:1]
    bound = min(bounds)
    bases = [segment.base_offset for segment in log.segments if segment.base_offset <= bound]
    return max(first_dirty, bases[-1] if bases else first_dirty)


def _is_overdue(log: Log, dirty: list[LogSegment], wall_ms: int) -> bool:
    """Whether the oldest dirty segment began more than ``max.compaction.lag.ms`` ago."""
    if log.settings.max_compaction_lag_ms == MAX_LONG:
        return False
    began_ms = [timestamp for each in dirty if (timestamp := log.first_timestamp(each)) > 0]
    return min(began_ms, default=wall_ms) < wall_ms - log.settings.max_compaction_lag_ms
