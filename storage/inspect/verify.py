"""Verifying a data directory or one partition of it, from outside and without changing anything.

What is damage and what is merely worth knowing: docs/format/verifying.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import attrs

from splashdam.model.broker_errors import BrokerResponseError, KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.directories.checkpoints import (
    CLEANER_OFFSET_NAME,
    HIGH_WATERMARK_NAME,
    LOG_START_NAME,
    RECOVERY_POINT_NAME,
    decode_lines,
    parse_entry,
)
from splashdam.storage.directories.partition_metadata import FILE_NAME as METADATA_NAME
from splashdam.storage.directories.partition_metadata import read_topic_id
from splashdam.storage.directories.scan import holds_a_log
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.files.log_file import storage_errors
from splashdam.storage.inspect.findings import Finding, error, note
from splashdam.storage.inspect.read_only import OnBytes, read_small
from splashdam.storage.inspect.verify_segment import SegmentVerifier
from splashdam.storage.leader_epochs import FILE_NAME as EPOCHS_NAME
from splashdam.storage.producers.snapshots import decode_snapshot
from splashdam.storage.recovery.leftovers import TEMPORARY
from splashdam.storage.segments.segment import CLEANED, DELETED, LOG, SEGMENT_SUFFIXES, SNAPSHOT, SWAP
from splashdam.storage.topic_names import (
    METADATA_TOPIC,
    ending_of_moved_directory,
    partition_of_directory,
)

CHECKPOINT_NAMES = (RECOVERY_POINT_NAME, HIGH_WATERMARK_NAME, LOG_START_NAME, CLEANER_OFFSET_NAME)
_LEFTOVERS = (DELETED, CLEANED, SWAP, TEMPORARY)
_KNOWN = (METADATA_NAME, EPOCHS_NAME)


@attrs.define
class Totals:
    """How much was looked at."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0


def partition_directories(path: str) -> list[str]:
    """``path`` if it is a partition's directory, else the partitions in it.

    Raises:
        KafkaStorageError: it is no directory, or neither the one nor the other.
    """
    with storage_errors("list", path):
        found = sorted(os.scandir(path), key=lambda entry: entry.name)
    if any(entry.name.endswith((LOG, SNAPSHOT)) or entry.name == METADATA_NAME for entry in found):
        return [path]
    files = DiskFiles()
    partitions = [
        entry.path
        for entry in found
        if entry.is_dir()
        and (where := partition_of_directory(entry.name)) is not None
        and where.topic != METADATA_TOPIC
        and ending_of_moved_directory(entry.name) is None
        and holds_a_log(files, entry.path)
    ]
    if not partitions and not any(entry.name in (*CHECKPOINT_NAMES, "meta.properties") for entry in found):
        raise KafkaStorageError(f"{path} is neither a data directory nor the directory of a partition")
    return partitions


def log_bytes(directories: list[str]) -> int:
    """The size of all ``.log`` files: what verifying will read."""
    return sum(
        entry.stat().st_size
        for directory in directories
        for entry in os.scandir(directory)
        if entry.name.endswith(LOG)
    )


def verify_root(path: str) -> Iterator[Finding]:
    """The checkpoints of a data directory."""
    for name in CHECKPOINT_NAMES:
        file = os.path.join(path, name)
        if os.path.exists(file) and os.path.getsize(file):  # Kafka makes some empty, and writes them later
            try:
                for line in decode_lines(read_small(file), file):
                    parse_entry(line, file)
            except KafkaStorageError as damage:
                yield error(file, damage.message)


def verify_partition(
    directory: str, totals: Totals, *, contiguous: bool = False, on_bytes: OnBytes = lambda _: None
) -> Iterator[Finding]:
    """One partition: segments in order, snapshots, small files, and what does not belong there.

    Args:
        directory: the partition's.
        totals: is added to.
        contiguous: a gap between offsets is an error; else a note, as compaction leaves them.
        on_bytes: is told of progress in the ``.log`` files.

    Raises:
        KafkaStorageError: the directory cannot be listed.
    """
    with storage_errors("list", directory):
        names = sorted(os.listdir(directory))
    totals.partitions += 1
    yield from _strays(directory, names)
    next_offset = None
    for base in segment_bases(names):
        segment = SegmentVerifier(
            directory, base, names, next_offset=next_offset, contiguous=contiguous, on_bytes=on_bytes
        )
        try:
            yield from segment.run()
        except KafkaStorageError as failure:
            yield error(directory, failure.message)
        next_offset = segment.next_offset
        totals.segments += 1
        totals.batches += segment.batch_count
        totals.records += segment.record_count
    yield from _small_files(directory, names)


def verify_beside_segments(directory: str) -> Iterator[Finding]:
    """Of one partition what is no segment: snapshots, small files, and what does not belong there.

    Raises:
        KafkaStorageError: the directory cannot be listed.
    """
    with storage_errors("list", directory):
        names = sorted(os.listdir(directory))
    yield from _strays(directory, names)
    yield from _small_files(directory, names)


def segment_bases(names: Iterable[str]) -> list[int]:
    """The base offsets of the segments among the files of a partition, in their order."""
    return sorted(int(name[:20]) for name in names if _is_of_a_segment(name) and name.endswith(LOG))


def _is_of_a_segment(name: str) -> bool:
    digits, dot, _ = name.partition(".")
    return bool(dot) and len(digits) == 20 and digits.isascii() and digits.isdigit()


def _strays(directory: str, names: list[str]) -> Iterator[Finding]:
    bases = set(segment_bases(names))
    for name in names:
        path = os.path.join(directory, name)
        if name.endswith(_LEFTOVERS):
            yield note(path, "was left by an interrupted step; the next start finishes it")
        elif name.endswith((*SEGMENT_SUFFIXES, SNAPSHOT)):
            if not _is_of_a_segment(name):
                yield error(path, "its name begins with no offset of 20 digits; Kafka would not load the log")
            elif name.endswith(SEGMENT_SUFFIXES) and int(name[:20]) not in bases:
                yield error(path, "an orphan: there is no .log of that number")
        elif name not in _KNOWN:
            yield note(path, "is no file of a log")
    if METADATA_NAME not in names:
        yield note(
            directory, f"has no {METADATA_NAME}; a real Kafka would set the directory aside as a stray"
        )


def _small_files(directory: str, names: list[str]) -> Iterator[Finding]:
    for name in names:
        path = os.path.join(directory, name)
        try:
            if name.endswith(SNAPSHOT):
                decode_snapshot(read_small(path))
            elif name == METADATA_NAME:
                read_topic_id(DiskFiles(), directory)
            elif name == EPOCHS_NAME:
                yield from _epochs(path)
        except BrokerResponseError as damage:
            yield error(path, damage.message)


def _epochs(path: str) -> Iterator[Finding]:
    before = (-1, -1)
    for line in decode_lines(read_small(path), path):
        fields = line.split()
        if len(fields) != 2 or not all(field.isascii() and field.isdigit() for field in fields):
            yield error(path, f"{line!r} is not 'epoch offset'")
            return
        epoch, start = int(fields[0]), int(fields[1])
        if epoch <= before[0] or start <= before[1]:
            yield error(path, f"{line!r} does not rise above '{before[0]} {before[1]}'")
        before = (epoch, start)


def cleaning_notes(partitions: Iterable[str]) -> Iterator[Finding]:
    """How far each partition was compacted, and how much has come since; nothing of those that never were.

    Args:
        partitions: their directories. The checkpoint is the one of the data directory above them; where there
            is none, or it is damaged (``verify_root`` says so), there is nothing to tell.

    Raises:
        KafkaStorageError: a directory cannot be listed.
    """
    checkpoints: dict[str, dict[TopicPartition, int]] = {}
    for directory in partitions:
        root, name = os.path.split(os.path.abspath(directory))
        if root not in checkpoints:
            checkpoints[root] = _cleaner_offsets(root)
        where = partition_of_directory(name)
        offset = checkpoints[root].get(where) if where is not None else None
        if offset is not None:
            yield _cleaning_note(directory, offset)


def _cleaner_offsets(root: str) -> dict[TopicPartition, int]:
    path = os.path.join(root, CLEANER_OFFSET_NAME)
    try:
        return dict(parse_entry(line, path) for line in decode_lines(read_small(path), path))
    except KafkaStorageError:
        return {}


def _cleaning_note(directory: str, first_dirty: int) -> Finding:
    """By Kafka's measure: the active segment counts neither way; one that was cleaned in part is clean."""
    with storage_errors("list", directory):
        sizes = sorted(
            (int(entry.name[: -len(LOG)]), entry.stat().st_size)
            for entry in os.scandir(directory)
            if entry.name.endswith(LOG) and entry.name[: -len(LOG)].isdecimal()
        )
    clean = sum(size for base, size in sizes[:-1] if base < first_dirty)
    dirty = sum(size for base, size in sizes[:-1] if base >= first_dirty)
    share = dirty / ((clean + dirty) or 1)
    return note(
        directory,
        f"compacted up to offset {first_dirty}; of {clean + dirty:,} bytes in closed segments {dirty:,} "
        f"are dirty ({share:.0%})",
    )
