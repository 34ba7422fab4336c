"""The checkpoints in the root of a data directory: what the next start has to know of each partition."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from typing import NamedTuple

from splashdam.model.values import TopicPartition
from splashdam.storage.directories.checkpoints import (
    CLEANER_OFFSET_NAME,
    HIGH_WATERMARK_NAME,
    LOG_START_NAME,
    RECOVERY_POINT_NAME,
    OffsetCheckpoint,
)
from splashdam.storage.files.disk import Files
from splashdam.storage.log import Log


class KeptOffsets(NamedTuple):
    """What the next start has to know.

    Attributes:
        recovery_points: below which everything was flushed.
        log_starts: where logs start, of those that do not start with their first segment.
        high_watermarks: up to where other replicas had everything, of those that have others.
    """

    recovery_points: Mapping[TopicPartition, int]
    log_starts: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]


class RootCheckpoints:
    """All of them; every method but the reading ones raises KafkaStorageError where the disk refuses.

    Attributes:
        cleaner_offsets: where the compaction of each log goes on; written by the cleaner.
    """

    def __init__(self, files: Files, root: str) -> None:
        self._recovery_points = OffsetCheckpoint(files, f"{root}/{RECOVERY_POINT_NAME}")
        self._high_watermarks = OffsetCheckpoint(files, f"{root}/{HIGH_WATERMARK_NAME}")
        self._log_starts = OffsetCheckpoint(files, f"{root}/{LOG_START_NAME}")
        self.cleaner_offsets = OffsetCheckpoint(files, f"{root}/{CLEANER_OFFSET_NAME}")
        self._all = (self._recovery_points, self._log_starts, self._high_watermarks, self.cleaner_offsets)

    def read(self) -> KeptOffsets:
        """What the last broker left."""
        return KeptOffsets(
            self._recovery_points.read(), self._log_starts.read(), self._high_watermarks.read()
        )

    def write_all(self, logs: Mapping[TopicPartition, Log]) -> None:
        """All that are written here, as they are now."""
        self.write_high_watermarks(logs)
        self.write_recovery_points(logs)

    def write_high_watermarks(self, logs: Mapping[TopicPartition, Log]) -> None:
        """As they are now."""
        self._high_watermarks.write({tp: log.high_watermark_to_keep for tp, log in logs.items()})

    def write_recovery_points(self, logs: Mapping[TopicPartition, Log]) -> None:
        """As they are now, and the starts of logs first.

        Segments that the disk refused to remove have their names still, and were perhaps never flushed. What
        says that all is flushed behind them has to say that they are no part of their log.
        """
        self.write_log_starts(logs)
        self._write_recovery_points(logs)

    def _write_recovery_points(self, logs: Mapping[TopicPartition, Log]) -> None:
        self._recovery_points.write({tp: log.recovery_point for tp, log in logs.items()})

    def write_log_starts(self, logs: Mapping[TopicPartition, Log]) -> None:
        """As they are now, as far as the names of segments do not say it."""
        starts = {tp: log.log_start_to_keep for tp, log in logs.items()}
        self._log_starts.write({tp: start for tp, start in starts.items() if start is not None})

    def truncated(self, topic_partition: TopicPartition, logs: Mapping[TopicPartition, Log]) -> None:
        """A log ends earlier now, or is gone: what comes instead of the rest is not flushed nor clean.

        Its start may have gone back with its end.
        """
        self._write_recovery_points(logs)
        self.write_log_starts(logs)
        log, cleaned = logs.get(topic_partition), self.cleaner_offsets.read()
        end = 0 if log is None else log.log_end_offset
        if cleaned.get(topic_partition, 0) > end:
            self.cleaner_offsets.write({**cleaned, topic_partition: end})

    def forget(self, topics: Collection[str]) -> None:
        """Removes topics from all: a later topic of the same name must not find offsets of this one."""
        for checkpoint in self._all:
            checkpoint.forget(topics)

    def keep_only(self, partitions: Container[TopicPartition]) -> None:
        """Removes all others: a topic may have been deleted while the directory could not be seen."""
        for checkpoint in self._all:
            checkpoint.keep_only(partitions)


class SpreadCheckpoints:
    """Those of several data directories, each with the logs that lie in it.

    Args:
        checkpoints: of the directories that are in use, by their paths.

    Attributes:
        cleaner_offsets: as of one directory.
    """

    def __init__(self, checkpoints: Callable[[], Mapping[str, RootCheckpoints]]) -> None:
        self._checkpoints = checkpoints
        self.cleaner_offsets = SpreadOffsets(checkpoints)

    def _each(
        self, logs: Mapping[TopicPartition, Log]
    ) -> Iterator[tuple[RootCheckpoints, dict[TopicPartition, Log]]]:
        for root, checkpoints in self._checkpoints().items():
            yield checkpoints, {tp: log for tp, log in logs.items() if os.path.dirname(log.directory) == root}

    def write_all(self, logs: Mapping[TopicPartition, Log]) -> None:
        """As `RootCheckpoints.write_all`, and the others likewise."""
        for checkpoints, own in self._each(logs):
            checkpoints.write_all(own)

    def write_high_watermarks(self, logs: Mapping[TopicPartition, Log]) -> None:
        """As they are now."""
        for checkpoints, own in self._each(logs):
            checkpoints.write_high_watermarks(own)

    def write_recovery_points(self, logs: Mapping[TopicPartition, Log]) -> None:
        """As they are now."""
        for checkpoints, own in self._each(logs):
            checkpoints.write_recovery_points(own)

    def write_log_starts(self, logs: Mapping[TopicPartition, Log]) -> None:
        """As they are now."""
        for checkpoints, own in self._each(logs):
            checkpoints.write_log_starts(own)

    def truncated(self, topic_partition: TopicPartition, logs: Mapping[TopicPartition, Log]) -> None:
        """A log ends earlier now, or is gone."""
        for checkpoints, own in self._each(logs):
            checkpoints.truncated(topic_partition, own)

    def forget(self, topics: Collection[str]) -> None:
        """Removes topics from all."""
        for checkpoints in self._checkpoints().values():
            checkpoints.forget(topics)


class SpreadOffsets:
    """Where the compaction of each log goes on, in the directory that it lies in."""

    def __init__(self, checkpoints: Callable[[], Mapping[str, RootCheckpoints]]) -> None:
        self._checkpoints = checkpoints
        self.root_of: Callable[[TopicPartition], str | None] = lambda _: None

    def read(self) -> dict[TopicPartition, int]:
        """Those of all directories."""
        return {
            tp: offset
            for root, checkpoints in self._checkpoints().items()
            for tp, offset in checkpoints.cleaner_offsets.read().items()
            if self.root_of(tp) == root
        }

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replaces them, each in its directory."""
        for root, checkpoints in self._checkpoints().items():
            checkpoints.cleaner_offsets.write(
                {tp: offset for tp, offset in offsets.items() if self.root_of(tp) == root}
            )
