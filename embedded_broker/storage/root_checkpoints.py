"""The checkpoints in the root of a data directory: what the next start has to know of each partition."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from splashdam.embedded_broker.storage.checkpoints import (
    CLEANER_OFFSET_NAME,
    HIGH_WATERMARK_NAME,
    LOG_START_NAME,
    RECOVERY_POINT_NAME,
    OffsetCheckpoint,
)
from splashdam.embedded_broker.storage.files import Files
from splashdam.embedded_broker.storage.log import Log
from splashdam.model.values import TopicPartition


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

    def recovery_points(self) -> dict[TopicPartition, int]:
        """Below which everything was flushed."""
        return self._recovery_points.read()

    def log_starts(self) -> dict[TopicPartition, int]:
        """Where logs start, of those that do not start with their first segment."""
        return self._log_starts.read()

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Up to where other replicas had everything, of those that have others."""
        return self._high_watermarks.read()

    def write_all(self, logs: Mapping[TopicPartition, Log]) -> None:
        """All that are written here, as they are now."""
        self.write_high_watermarks(logs)
        self.write_recovery_points(logs)
        self.write_log_starts(logs)

    def write_high_watermarks(self, logs: Mapping[TopicPartition, Log]) -> None:
        """As they are now."""
        self._high_watermarks.write({tp: log.high_watermark_to_keep for tp, log in logs.items()})

    def write_recovery_points(self, logs: Mapping[TopicPartition, Log]) -> None:
        """As they are now."""
        self._recovery_points.write({tp: log.recovery_point for tp, log in logs.items()})

    def write_log_starts(self, logs: Mapping[TopicPartition, Log]) -> None:
        """As they are now, as far as the names of segments do not say it."""
        starts = {tp: log.log_start_to_keep for tp, log in logs.items()}
        self._log_starts.write({tp: start for tp, start in starts.items() if start is not None})

    def truncated(self, topic_partition: TopicPartition, logs: Mapping[TopicPartition, Log]) -> None:
        """A log ends earlier now, or is gone: what comes instead of the rest is not flushed nor clean."""
        self.write_recovery_points(logs)
        log, cleaned = logs.get(topic_partition), self.cleaner_offsets.read()
        end = 0 if log is None else log.log_end_offset
        if cleaned.get(topic_partition, 0) > end:
            self.cleaner_offsets.write({**cleaned, topic_partition: end})

    def forget(self, topics: Collection[str]) -> None:
        """Removes topics from all: a later topic of the same name must not find offsets of this one."""
        for checkpoint in (
            self._recovery_points,
            self._log_starts,
            self._high_watermarks,
            self.cleaner_offsets,
        ):
            checkpoint.forget(topics)
