"""Checkpoint files: small tables in text, replaced as a whole. Format: docs/format/checkpoints.md."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from typing import Protocol

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


class KeepsOffsets(Protocol):
    """One offset for each partition, kept for the next start."""

    def read(self) -> dict[TopicPartition, int]:
        """The offsets."""
        ...

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replaces them; KafkaStorageError: it could not be written."""
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
        """Removes the offsets of some topics; the file is read only while it is not known what it says.

        Raises:
            KafkaStorageError: it could not be written; the old one stands.
        """
        self._keep(lambda topic_partition: topic_partition.topic not in topics)

    def keep_only(self, partitions: Container[TopicPartition]) -> None:
        """Removes the offsets of all other partitions, likewise."""
        self._keep(partitions.__contains__)

    def _keep(self, is_kept: Callable[[TopicPartition], bool]) -> None:
        if self._written is None:
            self._written = self._read()
        offsets = self._written or {}
        kept = {tp: offset for tp, offset in offsets.items() if is_kept(tp)}
        if len(kept) < len(offsets):
            self.write(kept)

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replaces the file, unless it says the same already.

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
