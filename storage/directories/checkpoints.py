"""Checkpoint files in the root of a data directory: offsets of each partition for the next start.

They are small text tables, replaced as a whole. Format: docs/format/checkpoints.md.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.options import MAX_INT, MAX_LONG
from splashdam.model.values import TopicPartition
from splashdam.storage.files.disk import Files
from splashdam.storage.files.log_file import OversizedFileError

RECOVERY_POINT_NAME = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_NAME = "replication-offset-checkpoint"
LOG_START_NAME = "log-start-offset-checkpoint"
CLEANER_OFFSET_NAME = "cleaner-offset-checkpoint"

_VERSION = "0"
_MAX_DIGITS = 20  # of a base offset in a file name
_logger = logging.getLogger(__name__)


def encode_lines(lines: Iterable[str]) -> bytes:
    """Return a checkpoint file: version, number of entries, entries."""
    listed = list(lines)
    return "".join(f"{line}\n" for line in (_VERSION, str(len(listed)), *listed)).encode()


def decode_lines(data: bytes, path: str) -> list[str]:
    """Return the entries of a checkpoint file.

    Raises:
        KafkaStorageError: the version or the count is wrong.
    """
    lines = data.decode(errors="replace").split("\n")
    if len(lines) < 3 or lines[0] != _VERSION:
        raise KafkaStorageError(f"{path} is not a checkpoint file of version {_VERSION}")
    entries = lines[2:-1]
    if whole_number_of(lines[1]) != len(entries) or lines[-1]:
        raise KafkaStorageError(f"{path} says {lines[1]} entries and has {len(entries)}")
    return entries


class CleanerOffsets(Protocol):
    """The first dirty offset of each log, stored for the next cleaning."""

    def read(self) -> dict[TopicPartition, int]: ...

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the offsets; raise KafkaStorageError if the disk refuses."""
        ...


class OffsetCheckpoint:
    """One offset for each partition, in a file of the data directory."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._known: dict[TopicPartition, int] | None = None  # what the file says; None: not read, or no file
        # A write has failed: it may have replaced the file, and a power cut may undo that.
        self._is_in_doubt = False

    def read(self) -> dict[TopicPartition, int]:
        """Return the offsets; none if the file is missing or damaged, for which each use has a fallback."""
        return dict(self._offsets())

    def _offsets(self) -> dict[TopicPartition, int]:
        if self._is_in_doubt:
            return self._read() or {}
        if self._known is None:
            self._known = self._read()
        return self._known or {}

    def _read(self) -> dict[TopicPartition, int] | None:
        try:
            data = self._files.read_bytes(self._path)
        except OversizedFileError as error:
            _logger.warning("%s; ignoring the file", error.message)
            return None
        if data is None:
            return None
        try:
            return dict(parse_entry(line, self._path) for line in decode_lines(data, self._path))
        except KafkaStorageError as error:
            _logger.warning("%s; ignoring the file", error.message)
            return None

    def forget(self, topics: Collection[str]) -> None:
        """Remove the offsets of some topics.

        Raises:
            KafkaStorageError: the file could not be written; the old one stays.
        """
        self._keep(lambda topic_partition: topic_partition.topic not in topics)

    def keep_only(self, partitions: Container[TopicPartition]) -> None:
        """Remove the offsets of all other partitions; errors as ``forget``."""
        self._keep(partitions.__contains__)

    def _keep(self, is_kept: Callable[[TopicPartition], bool]) -> None:
        offsets = self._offsets()
        kept = {tp: offset for tp, offset in offsets.items() if is_kept(tp)}
        if len(kept) < len(offsets):
            self.write(kept)

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the file, unless nothing has changed.

        Raises:
            KafkaStorageError: the file could not be written; the old one stays.
        """
        if offsets == self._known and not self._is_in_doubt:  # the rule in an idle broker, every few seconds
            return
        lines = (f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items()))
        self._is_in_doubt = True
        self._files.write_atomic(self._path, encode_lines(lines))
        self._known, self._is_in_doubt = dict(offsets), False


def parse_entry(line: str, path: str) -> tuple[TopicPartition, int]:
    fields = line.split()
    if len(fields) == 3:
        partition, offset = whole_number_of(fields[1], MAX_INT), whole_number_of(fields[2])
        if partition is not None and offset is not None:
            return TopicPartition(fields[0], partition), offset
    raise KafkaStorageError(f"{path}: {line!r} is not 'topic partition offset'")


def whole_number_of(text: str, maximum: int = MAX_LONG) -> int | None:
    """Return the number of plain ASCII digits; None for other text, or a number above ``maximum``."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        return None
    return number if (number := int(text)) <= maximum else None


class CheckpointedLog(Protocol):
    """What checkpoints need of a log."""

    @property
    def directory(self) -> str: ...

    @property
    def recovery_point(self) -> int: ...

    @property
    def high_watermark_checkpoint(self) -> int: ...

    @property
    def log_start_checkpoint(self) -> int | None: ...

    @property
    def log_end_offset(self) -> int: ...


Logs: TypeAlias = Mapping[TopicPartition, CheckpointedLog]


class CheckpointedOffsets(NamedTuple):
    """What the last broker left in the checkpoint files.

    Attributes:
        recovery_points: everything below was flushed.
        log_starts: log start offsets, of logs that do not start with their first segment.
        high_watermarks: high watermarks.
    """

    recovery_points: Mapping[TopicPartition, int]
    log_starts: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]


class RootCheckpoints:
    """The checkpoint files of one data directory; writing raises KafkaStorageError if the disk refuses.

    Attributes:
        cleaner_offsets: the first dirty offset of each log; written by the cleaner.
    """

    def __init__(self, files: Files, root: str) -> None:
        self._recovery_points = OffsetCheckpoint(files, f"{root}/{RECOVERY_POINT_NAME}")
        self._high_watermarks = OffsetCheckpoint(files, f"{root}/{HIGH_WATERMARK_NAME}")
        self._log_starts = OffsetCheckpoint(files, f"{root}/{LOG_START_NAME}")
        self.cleaner_offsets = OffsetCheckpoint(files, f"{root}/{CLEANER_OFFSET_NAME}")
        self._all = (self._recovery_points, self._log_starts, self._high_watermarks, self.cleaner_offsets)

    def read(self) -> CheckpointedOffsets:
        """Read what the last broker left."""
        return CheckpointedOffsets(
            self._recovery_points.read(), self._log_starts.read(), self._high_watermarks.read()
        )

    def write_all(self, logs: Logs) -> None:
        """Checkpoint high watermarks, log start offsets and recovery points."""
        self.write_high_watermarks(logs)
        self.write_recovery_points(logs)

    def write_high_watermarks(self, logs: Logs) -> None:
        """Checkpoint the high watermarks."""
        self._high_watermarks.write({tp: log.high_watermark_checkpoint for tp, log in logs.items()})

    def write_recovery_points(self, logs: Logs) -> None:
        """Checkpoint the recovery points, after the log start offsets."""
        # First: segments below the log start that the disk refused to remove still have their names, and
        # perhaps were never flushed. A recovery point beyond them must not be durable before the log start
        # that excludes them, or recovery would skip checking what it takes for a part of the log.
        self.write_log_starts(logs)
        self._write_recovery_points(logs)

    def _write_recovery_points(self, logs: Logs) -> None:
        self._recovery_points.write({tp: log.recovery_point for tp, log in logs.items()})

    def write_log_starts(self, logs: Logs) -> None:
        """Checkpoint the log start offsets that do not follow from the names of segments."""
        starts = {tp: log.log_start_checkpoint for tp, log in logs.items()}
        self._log_starts.write({tp: start for tp, start in starts.items() if start is not None})

    def log_truncated(self, topic_partition: TopicPartition, logs: Logs) -> None:
        """Checkpoint a truncated or removed log: offsets above its new end are neither flushed nor clean."""
        # First: above the new end it would vouch for records that were never flushed.
        self._write_recovery_points(logs)
        # The log start offset may have gone back with the end.
        self.write_log_starts(logs)
        log, cleaned = logs.get(topic_partition), self.cleaner_offsets.read()
        end = 0 if log is None else log.log_end_offset
        if cleaned.get(topic_partition, 0) > end:
            self.cleaner_offsets.write({**cleaned, topic_partition: end})

    def forget(self, topics: Collection[str]) -> None:
        """Remove topics from all files: a later topic of the same name must not find their offsets."""
        for checkpoint in self._all:
            checkpoint.forget(topics)

    def keep_only(self, partitions: Container[TopicPartition]) -> None:
        """Remove all other partitions: a topic may have been deleted while the directory was offline."""
        for checkpoint in self._all:
            checkpoint.keep_only(partitions)


class SpreadCheckpoints:
    """The checkpoint files of several data directories, each with the logs in it; see ``RootCheckpoints``.

    Args:
        checkpoints: returns those of the online directories, by path.
        root_of: returns the data directory of a partition; None for an unknown one.

    Attributes:
        cleaner_offsets: the first dirty offset of each log.
    """

    def __init__(
        self,
        checkpoints: Callable[[], Mapping[str, RootCheckpoints]],
        root_of: Callable[[TopicPartition], str | None],
    ) -> None:
        self._checkpoints = checkpoints
        self.cleaner_offsets = SpreadOffsets(checkpoints, root_of)

    def _each(self, logs: Logs) -> Iterator[tuple[RootCheckpoints, Logs]]:
        for root, checkpoints in self._checkpoints().items():
            yield checkpoints, {tp: log for tp, log in logs.items() if os.path.dirname(log.directory) == root}

    def write_all(self, logs: Logs) -> None:
        for checkpoints, own in self._each(logs):
            checkpoints.write_all(own)

    def write_high_watermarks(self, logs: Logs) -> None:
        for checkpoints, own in self._each(logs):
            checkpoints.write_high_watermarks(own)

    def write_recovery_points(self, logs: Logs) -> None:
        for checkpoints, own in self._each(logs):
            checkpoints.write_recovery_points(own)

    def write_log_starts(self, logs: Logs) -> None:
        for checkpoints, own in self._each(logs):
            checkpoints.write_log_starts(own)

    def log_truncated(self, topic_partition: TopicPartition, logs: Logs) -> None:
        for checkpoints, own in self._each(logs):
            checkpoints.log_truncated(topic_partition, own)

    def forget(self, topics: Collection[str]) -> None:
        for checkpoints in self._checkpoints().values():
            checkpoints.forget(topics)


class SpreadOffsets:
    """The first dirty offset of each log, in the data directory of the log."""

    def __init__(
        self,
        checkpoints: Callable[[], Mapping[str, RootCheckpoints]],
        root_of: Callable[[TopicPartition], str | None],
    ) -> None:
        self._checkpoints = checkpoints
        self._root_of = root_of

    def read(self) -> dict[TopicPartition, int]:
        """Return the offsets of all directories."""
        return {
            tp: offset
            for root, checkpoints in self._checkpoints().items()
            for tp, offset in checkpoints.cleaner_offsets.read().items()
            if self._root_of(tp) == root
        }

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the offsets, each in the data directory of its log."""
        for root, checkpoints in self._checkpoints().items():
            checkpoints.cleaner_offsets.write(
                {tp: offset for tp, offset in offsets.items() if self._root_of(tp) == root}
            )
