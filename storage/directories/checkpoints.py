"""Checkpoint files in the root of a data directory: what the next start has to know of each partition.

They are small tables in text, replaced as a whole. Format: docs/format/checkpoints.md.
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

RECOVERY_POINT_NAME = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_NAME = "replication-offset-checkpoint"
LOG_START_NAME = "log-start-offset-checkpoint"
CLEANER_OFFSET_NAME = "cleaner-offset-checkpoint"

_VERSION = "0"
_MAX_DIGITS = 20  # of an offset in a file's name
_logger = logging.getLogger(__name__)


def encode_lines(lines: Iterable[str]) -> bytes:
    """The whole file: version, number of entries, entries."""
    listed = list(lines)
    return "".join(f"{line}\n" for line in (_VERSION, str(len(listed)), *listed)).encode()


def decode_lines(data: bytes, path: str) -> list[str]:
    """The entries of a whole file.

    Raises:
        KafkaStorageError: version or count is wrong.
    """
    lines = data.decode(errors="replace").split("\n")
    if len(lines) < 3 or lines[0] != _VERSION:
        raise KafkaStorageError(f"{path} is no checkpoint of version {_VERSION}")
    entries = lines[2:-1]
    if not lines[1].isdigit() or int(lines[1]) != len(entries) or lines[-1]:
        raise KafkaStorageError(f"{path} says {lines[1]} entries and has {len(entries)}")
    return entries


class CleanerOffsets(Protocol):
    """One offset for each partition, kept for the next start."""

    def read(self) -> dict[TopicPartition, int]:
        """The offsets."""
        ...

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace them; KafkaStorageError: it could not be written."""
        ...


class OffsetCheckpoint:
    """One offset for each partition, in a file of the data directory."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._written: dict[TopicPartition, int] | None = None

    def read(self) -> dict[TopicPartition, int]:
        """The offsets; empty where the file is missing or damaged (each use has a safe fallback for that)."""
        return self._read() or {}

    def _read(self) -> dict[TopicPartition, int] | None:
        data = self._files.read_bytes(self._path)
        if data is None:
            return None
        try:
            return dict(parse_entry(line, self._path) for line in decode_lines(data, self._path))
        except KafkaStorageError as error:
            _logger.warning("%s; going on without it", error.message)
            return None

    def forget(self, topics: Collection[str]) -> None:
        """Remove the offsets of some topics; the file is read only while it is not known what it says.

        Raises:
            KafkaStorageError: it could not be written; the old one stands.
        """
        self._keep(lambda topic_partition: topic_partition.topic not in topics)

    def keep_only(self, partitions: Container[TopicPartition]) -> None:
        """Remove the offsets of all other partitions, likewise."""
        self._keep(partitions.__contains__)

    def _keep(self, is_kept: Callable[[TopicPartition], bool]) -> None:
        if self._written is None:
            self._written = self._read()
        offsets = self._written or {}
        kept = {tp: offset for tp, offset in offsets.items() if is_kept(tp)}
        if len(kept) < len(offsets):
            self.write(kept)

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the file, unless it says the same already.

        Raises:
            KafkaStorageError: it could not be written; the old one stands.
        """
        if offsets == self._written:  # so it is every few seconds in a broker that nobody uses
            return
        lines = (f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items()))
        self._written = None  # a write that fails may have replaced the file all the same
        self._files.write_atomic(self._path, encode_lines(lines))
        self._written = dict(offsets)


def parse_entry(line: str, path: str) -> tuple[TopicPartition, int]:
    fields = line.split()
    if len(fields) == 3:
        partition, offset = whole_number_of(fields[1], MAX_INT), whole_number_of(fields[2])
        if partition is not None and offset is not None:
            return TopicPartition(fields[0], partition), offset
    raise KafkaStorageError(f"{path}: {line!r} is not 'topic partition offset'")


def whole_number_of(text: str, maximum: int = MAX_LONG) -> int | None:
    """The number that plain digits stand for; None where they do not, or for more than ``maximum``."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        return None
    return number if (number := int(text)) <= maximum else None


class CheckpointedLog(Protocol):
    """What checkpoints keep of a log, and where it lies."""

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

    def read(self) -> CheckpointedOffsets:
        """What the last broker left."""
        return CheckpointedOffsets(
            self._recovery_points.read(), self._log_starts.read(), self._high_watermarks.read()
        )

    def write_all(self, logs: Logs) -> None:
        """All that are written here, as they are now."""
        self.write_high_watermarks(logs)
        self.write_recovery_points(logs)

    def write_high_watermarks(self, logs: Logs) -> None:
        """As they are now."""
        self._high_watermarks.write({tp: log.high_watermark_checkpoint for tp, log in logs.items()})

    def write_recovery_points(self, logs: Logs) -> None:
        """As they are now, and the starts of logs first.

        Segments that the disk refused to remove have their names still, and were perhaps never flushed. What
        says that all is flushed behind them has to say that they are no part of their log.
        """
        self.write_log_starts(logs)
        self._write_recovery_points(logs)

    def _write_recovery_points(self, logs: Logs) -> None:
        self._recovery_points.write({tp: log.recovery_point for tp, log in logs.items()})

    def write_log_starts(self, logs: Logs) -> None:
        """As they are now, as far as the names of segments do not say it."""
        starts = {tp: log.log_start_checkpoint for tp, log in logs.items()}
        self._log_starts.write({tp: start for tp, start in starts.items() if start is not None})

    def log_truncated(self, topic_partition: TopicPartition, logs: Logs) -> None:
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
        """Remove topics from all: a later topic of the same name must not find offsets of this one."""
        for checkpoint in self._all:
            checkpoint.forget(topics)

    def keep_only(self, partitions: Container[TopicPartition]) -> None:
        """Remove all others: a topic may have been deleted while the directory could not be seen."""
        for checkpoint in self._all:
            checkpoint.keep_only(partitions)


class SpreadCheckpoints:
    """Those of several data directories, each with the logs that lie in it.

    Args:
        checkpoints: of the directories that are in use, by their paths.
        root_of: the directory that a partition lies in, None for one that is not here.

    Attributes:
        cleaner_offsets: as of one directory.
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
        """As `RootCheckpoints.write_all`, and the others likewise."""
        for checkpoints, own in self._each(logs):
            checkpoints.write_all(own)

    def write_high_watermarks(self, logs: Logs) -> None:
        """As they are now."""
        for checkpoints, own in self._each(logs):
            checkpoints.write_high_watermarks(own)

    def write_recovery_points(self, logs: Logs) -> None:
        """As they are now."""
        for checkpoints, own in self._each(logs):
            checkpoints.write_recovery_points(own)

    def write_log_starts(self, logs: Logs) -> None:
        """As they are now."""
        for checkpoints, own in self._each(logs):
            checkpoints.write_log_starts(own)

    def log_truncated(self, topic_partition: TopicPartition, logs: Logs) -> None:
        """A log ends earlier now, or is gone."""
        for checkpoints, own in self._each(logs):
            checkpoints.log_truncated(topic_partition, own)

    def forget(self, topics: Collection[str]) -> None:
        """Remove topics from all."""
        for checkpoints in self._checkpoints().values():
            checkpoints.forget(topics)


class SpreadOffsets:
    """Where the compaction of each log goes on, in the directory that it lies in."""

    def __init__(
        self,
        checkpoints: Callable[[], Mapping[str, RootCheckpoints]],
        root_of: Callable[[TopicPartition], str | None],
    ) -> None:
        self._checkpoints = checkpoints
        self._root_of = root_of

    def read(self) -> dict[TopicPartition, int]:
        """Those of all directories."""
        return {
            tp: offset
            for root, checkpoints in self._checkpoints().items()
            for tp, offset in checkpoints.cleaner_offsets.read().items()
            if self._root_of(tp) == root
        }

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace them, each in its directory."""
        for root, checkpoints in self._checkpoints().items():
            checkpoints.cleaner_offsets.write(
                {tp: offset for tp, offset in offsets.items() if self._root_of(tp) == root}
            )
