"""Verify a data directory or one of its partitions, without changing anything.

What counts as an error and what as a note: docs/format/verifying.md. The indexes of a segment are read along
with its log, so that only one batch is in memory at a time.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack
from enum import Enum
from struct import Struct
from typing import NamedTuple

import attrs

from splashdam.model.broker_errors import BrokerResponseError, KafkaStorageError
from splashdam.model.errors import UnsupportedCodecError
from splashdam.model.values import TopicPartition
from splashdam.record.batch import MAGIC, BatchHeader
from splashdam.record.reader import RecordScan, iter_records, scan_batch
from splashdam.storage.directories.checkpoints import (
    CLEANER_OFFSET_NAME,
    HIGH_WATERMARK_NAME,
    LOG_START_NAME,
    RECOVERY_POINT_NAME,
    decode_lines,
    parse_entry,
    whole_number_of,
)
from splashdam.storage.directories.partition_metadata import FILE_NAME as METADATA_NAME
from splashdam.storage.directories.partition_metadata import read_topic_id
from splashdam.storage.directories.scan import holds_a_log
from splashdam.storage.files.disk import TEMPORARY, DiskFiles
from splashdam.storage.files.log_file import storage_errors
from splashdam.storage.inspect.read_only import (
    FoundBatch,
    OnBytes,
    ReadOnlyFile,
    Tail,
    iter_entries,
    measure_entries,
    open_read_only,
    read_small,
    walk_log,
)
from splashdam.storage.leader_epochs import FILE_NAME as EPOCHS_NAME
from splashdam.storage.producers.snapshots import decode_snapshot
from splashdam.storage.segments.indexes import (
    MAX_RELATIVE_OFFSET,
    OFFSET_ENTRY,
    TIME_ENTRY,
    TXN_ENTRY,
    TXN_INDEX_VERSION,
)
from splashdam.storage.segments.segment import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
)
from splashdam.storage.topic_names import (
    INTERNAL_TOPICS,
    METADATA_TOPIC,
    partition_of_directory,
    suffix_of_renamed_directory,
)

CHECKPOINT_NAMES = (RECOVERY_POINT_NAME, HIGH_WATERMARK_NAME, LOG_START_NAME, CLEANER_OFFSET_NAME)
_LEFTOVERS = (DELETED, CLEANED, SWAP, TEMPORARY)
_KNOWN = (METADATA_NAME, EPOCHS_NAME)


class Level(Enum):
    """Severity of a finding."""

    NOTE = "note"
    ERROR = "error"


class Finding(NamedTuple):
    """One thing that verifying found.

    Attributes:
        level: error or note.
        path: the file or directory.
        position: position in the file, or None.
        text: what was found.
    """

    level: Level
    path: str
    position: int | None
    text: str


_EMPTY_SEGMENT = "an empty segment"


class EmptyPartitions:
    """Counts the internal topics' partitions in which nothing was ever written, most of which stay so."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def takes(self, level: Level, path: str, text: str) -> bool:
        """Count a finding that says no more than that such a partition is empty; return whether it does."""
        if level is not Level.NOTE or text != _EMPTY_SEGMENT:
            return False
        directory, name = os.path.split(path)
        where = partition_of_directory(os.path.basename(directory))
        if where is None or where.topic not in INTERNAL_TOPICS or name.strip("0") != LOG:
            return False
        self._counts[where.topic] = self._counts.get(where.topic, 0) + 1
        return True

    def __str__(self) -> str:
        """Return one line for all of them; empty text without any."""
        if not self._counts:
            return ""
        return "empty partitions: " + ", ".join(
            f"{count} of {topic}" for topic, count in self._counts.items()
        )


def note(path: str, text: str, position: int | None = None) -> Finding:
    """Return a note: worth knowing, but no damage."""
    return Finding(Level.NOTE, path, position, text)


def error(path: str, text: str, position: int | None = None) -> Finding:
    """Return an error: damage, or something that a broker would refuse."""
    return Finding(Level.ERROR, path, position, text)


@attrs.define
class Totals:
    """How much has been verified."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0


def partition_directories(path: str) -> list[str]:
    """Return ``path`` if it is a partition's directory, otherwise the partitions in it.

    Raises:
        KafkaStorageError: ``path`` is neither the directory of a partition nor a data directory.
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
        and suffix_of_renamed_directory(entry.name) is None
        and holds_a_log(files, entry.path)
    ]
    if not partitions and not any(entry.name in (*CHECKPOINT_NAMES, "meta.properties") for entry in found):
        raise KafkaStorageError(f"{path} is neither a data directory nor the directory of a partition")
    return partitions


def log_bytes(directories: list[str]) -> int:
    """Return the size of all ``.log`` files, which verifying will read."""
    return sum(
        entry.stat().st_size
        for directory in directories
        for entry in os.scandir(directory)
        if entry.name.endswith(LOG)
    )


def verify_root(path: str) -> Iterator[Finding]:
    """Verify the checkpoints of a data directory."""
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
    """Verify one partition: segments in order, snapshots, small files, and foreign files.

    Args:
        directory: the partition's directory.
        totals: is updated.
        contiguous: whether a gap between offsets is an error; otherwise it is a note, since compaction makes
            gaps.
        on_bytes: reports progress in the ``.log`` files.

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
    """Verify the snapshots and small files of a partition, and find foreign files; skip the segments.

    Raises:
        KafkaStorageError: the directory cannot be listed.
    """
    with storage_errors("list", directory):
        names = sorted(os.listdir(directory))
    yield from _strays(directory, names)
    yield from _small_files(directory, names)


def segment_bases(names: Iterable[str]) -> list[int]:
    """Return the base offsets of the segments among the files of a partition, in order."""
    return sorted(int(name[:20]) for name in names if _is_of_a_segment(name) and name.endswith(LOG))


def _is_of_a_segment(name: str) -> bool:
    digits, dot, _ = name.partition(".")
    return bool(dot) and len(digits) == 20 and digits.isascii() and digits.isdigit()


def _strays(directory: str, names: list[str]) -> Iterator[Finding]:
    bases = set(segment_bases(names))
    for name in names:
        path = os.path.join(directory, name)
        if name.endswith(_LEFTOVERS):
            yield note(path, "was left by an interrupted operation; the next start finishes it")
        elif name.endswith((*SEGMENT_SUFFIXES, SNAPSHOT)):
            if not _is_of_a_segment(name):
                yield error(path, "its name does not begin with 20 digits; Kafka would not load the log")
            elif name.endswith(SEGMENT_SUFFIXES) and int(name[:20]) not in bases:
                yield error(path, "an orphan: there is no .log with this offset")
        elif name not in _KNOWN:
            yield note(path, "is not a file of a log")
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
        match [whole_number_of(field) for field in line.split()]:
            case [int(epoch), int(start)]:
                pass
            case _:
                yield error(path, f"{line!r} is not 'epoch offset'")
                return
        if epoch <= before[0] or start <= before[1]:
            yield error(path, f"{line!r} does not rise above '{before[0]} {before[1]}'")
        before = (epoch, start)


def cleaning_notes(partitions: Iterable[str]) -> Iterator[Finding]:
    """Yield how far each partition was compacted, and how much is dirty; nothing for those that never were.

    Args:
        partitions: the directories of partitions. The cleaner checkpoint is read from the data directory
            above them; if it is missing or damaged (``verify_root`` reports that), there are no notes.

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
    """As Kafka counts: the active segment is neither clean nor dirty; a segment cleaned in part is clean."""
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


# --- one segment --------------------------------------------------------------------------------------------


class SegmentVerifier:
    """Verifies one segment; an instance runs once.

    Args:
        directory: the partition's directory.
        base_offset: the segment's base offset.
        names: the file names in the directory.
        next_offset: the offset after the previous segment; None for the first.
        contiguous: whether a gap between offsets is an error.
        on_bytes: reports progress in the ``.log``.

    Attributes:
        next_offset: the offset after the last batch so far.
        batch_count: the number of batches so far.
        record_count: the number of records in them, markers included.
    """

    def __init__(
        self,
        directory: str,
        base_offset: int,
        names: Collection[str],
        *,
        next_offset: int | None,
        contiguous: bool,
        on_bytes: OnBytes,
    ) -> None:
        self.next_offset = base_offset
        self.batch_count = self.record_count = 0
        self._directory = directory
        self._base_offset = base_offset
        self._names = names
        self._offset_before = next_offset
        self._found_gap = error if contiguous else note
        self._on_bytes = on_bytes
        self._log_path = self._path(LOG)
        self._indexes: list[IndexVerifier] = []

    def run(self) -> Iterator[Finding]:
        """Yield errors and notes in the order of the log.

        Raises:
            KafkaStorageError: a file cannot be read.
        """
        before = self._offset_before
        if before is not None and before > self._base_offset:
            yield error(self._log_path, f"the segment before ends with offset {before - 1}")
        elif before is not None and before < self._base_offset:
            yield self._found_gap(self._log_path, f"no offsets from {before} to {self._base_offset - 1}")
        with ExitStack() as files:
            log = files.enter_context(open_read_only(self._log_path))
            yield from self._open_indexes(files, is_empty=not log.end)
            for found in walk_log(log, self._on_bytes):
                yield from self._tail(found) if isinstance(found, Tail) else self._batch(found)
            for index in self._indexes:
                yield from index.end()
        if self._name(TXN_INDEX) in self._names:
            with open_read_only(self._path(TXN_INDEX)) as aborted:
                yield from verify_txn_index(aborted, self._base_offset, self.next_offset)

    def _open_indexes(self, files: ExitStack, *, is_empty: bool) -> Iterator[Finding]:
        if is_empty:
            yield note(self._log_path, _EMPTY_SEGMENT)
        for suffix, kind in ((INDEX, OffsetIndexVerifier), (TIME_INDEX, TimeIndexVerifier)):
            if self._name(suffix) not in self._names:
                yield note(self._path(suffix), "is missing; the next start rebuilds it")
                continue
            index = kind(files.enter_context(open_read_only(self._path(suffix))), self._base_offset)
            yield from index.notes()
            self._indexes.append(index)

    def _batch(self, found: FoundBatch) -> Iterator[Finding]:
        header, position = found.header, found.position
        if found.crc_ok is False:
            yield self._error(found, "its checksum is wrong")
        elif found.data is None:
            yield note(
                self._log_path,
                f"a batch of {header.size_bytes:,} bytes is not verified",
                position,
            )
        else:
            yield from self._records(found, found.data)
        if header.last_offset - self._base_offset > MAX_RELATIVE_OFFSET:
            yield self._error(found, f"its offsets are too far above the segment's base {self._base_offset}")
        yield from self._offsets(found)
        self.batch_count += 1
        self.next_offset = max(self.next_offset, header.next_offset)
        for index in self._indexes:
            yield from index.see(position, header)

    def _offsets(self, found: FoundBatch) -> Iterator[Finding]:
        """Check that offsets rise. In a wrapper of format 0 or 1 only the last is known without unpacking."""
        header, due = found.header, self.next_offset
        if header.last_offset < due or (header.magic == MAGIC and header.base_offset < due):
            yield self._error(found, f"its offsets begin at {header.base_offset}, expected {due}")
        elif header.base_offset > due and header.record_count >= 0:
            text = f"no offsets from {due} to {header.base_offset - 1}"
            yield self._found_gap(self._log_path, text, found.position)
        if header.record_count >= 0 and header.record_count < header.last_offset_delta + 1:
            text = f"{header.record_count} records with offsets {header.base_offset} to {header.last_offset}"
            yield self._found_gap(self._log_path, text, found.position)

    def _records(self, found: FoundBatch, data: memoryview) -> Iterator[Finding]:
        try:
            if found.header.magic == MAGIC:
                scan = scan_batch(data)
                self.record_count += found.header.record_count
                yield from self._max_timestamp(found, scan)
            else:
                self.record_count += sum(1 for _ in iter_records(data))
        except BrokerResponseError as damage:
            yield self._error(found, damage.message)
        except UnsupportedCodecError as missing:
            yield note(self._log_path, f"records were not verified: {missing}", found.position)

    def _max_timestamp(self, found: FoundBatch, scan: RecordScan) -> Iterator[Finding]:
        """Check the maximum timestamp in the header, which retention and ListOffsets rely on."""
        header = found.header
        is_wrong = scan.max_timestamp_ms != header.max_timestamp
        if is_wrong and header.record_count and not header.is_log_append_time:
            yield self._error(
                found,
                f"its header has the maximum timestamp {header.max_timestamp}, "
                f"its records go up to {scan.max_timestamp_ms}",
            )

    def _tail(self, tail: Tail) -> Iterator[Finding]:
        if tail.is_zeros:
            yield note(self._log_path, f"{tail.size_bytes:,} zero bytes after the last batch", tail.position)
        else:
            text = f"the last {tail.size_bytes:,} bytes are no batch: {tail.reason}"
            yield error(self._log_path, text, tail.position)

    def _error(self, found: FoundBatch, text: str) -> Finding:
        return error(
            self._log_path, f"the batch at offset {found.header.base_offset}: {text}", found.position
        )

    def _name(self, suffix: str) -> str:
        return f"{self._base_offset:020d}{suffix}"

    def _path(self, suffix: str) -> str:
        return os.path.join(self._directory, self._name(suffix))


class IndexVerifier(ABC):
    """Compares one index with the batches of the log, which ``see`` gets in order.

    Args:
        file: the index file.
        entry: the format of an entry.
        base_offset: the segment's base offset.
    """

    def __init__(self, file: ReadOnlyFile, entry: Struct, base_offset: int) -> None:
        self.path = file.path
        self.base_offset = base_offset
        self._extent = measure_entries(file, entry.size)
        self._entries = iter_entries(file, entry, self._extent.entry_count)
        self._entry_bytes = entry.size
        self._number = -1
        self.entry: tuple[int, ...] | None = None
        self.before: tuple[int, ...] | None = None
        self._advance()

    def notes(self) -> Iterator[Finding]:
        """Yield findings about the file as a whole."""
        if self._extent.zero_bytes:
            yield note(self.path, f"{self._extent.zero_bytes:,} preallocated zero bytes after the entries")
        if self._extent.torn_bytes:
            yield error(self.path, f"the last entry has {self._extent.torn_bytes} bytes: it was cut off")

    @abstractmethod
    def see(self, position: int, header: BatchHeader) -> Iterator[Finding]:
        """Check the entries for this batch, and entries before it that point to no batch."""

    def end(self) -> Iterator[Finding]:
        """Check for entries after the last batch."""
        if self.entry is not None:
            left = self._extent.entry_count - self._number
            yield self.complaint(f"{left:,} entries point behind the last batch, the first is {self.entry}")

    def complaint(self, text: str) -> Finding:
        """Return an error at the current entry."""
        return error(self.path, text, self._number * self._entry_bytes)

    def _advance(self) -> None:
        self.before, self.entry = self.entry, next(self._entries, None)
        self._number += 1


class OffsetIndexVerifier(IndexVerifier):
    """An entry has the last offset and the position of a batch."""

    def __init__(self, file: ReadOnlyFile, base_offset: int) -> None:
        super().__init__(file, OFFSET_ENTRY, base_offset)

    def see(self, position: int, header: BatchHeader) -> Iterator[Finding]:
        while self.entry is not None and self.entry[1] <= position:
            relative, at = self.entry
            if self.before is not None and (relative <= self.before[0] or at <= self.before[1]):
                yield self.complaint(f"entry {self.entry} does not rise above {self.before}")
            elif at != position:
                yield self.complaint(f"entry {self.entry}: no batch begins at byte {at}")
            elif self.base_offset + relative != header.last_offset:
                yield self.complaint(
                    f"entry {self.entry} says offset {self.base_offset + relative}, the batch at byte {at} "
                    f"ends with {header.last_offset}"
                )
            self._advance()


class TimeIndexVerifier(IndexVerifier):
    """An entry has the largest timestamp so far, and the last offset of the first batch that had it."""

    def __init__(self, file: ReadOnlyFile, base_offset: int) -> None:
        super().__init__(file, TIME_ENTRY, base_offset)

    def see(self, position: int, header: BatchHeader) -> Iterator[Finding]:
        while self.entry is not None and self.base_offset + self.entry[1] <= header.last_offset:
            timestamp, relative = self.entry
            if self.before is not None and (timestamp <= self.before[0] or relative < self.before[1]):
                yield self.complaint(f"entry {self.entry} does not rise above {self.before}")
            elif timestamp != header.max_timestamp:
                yield self.complaint(
                    f"entry {self.entry}: offset {self.base_offset + relative} is in a batch whose largest "
                    f"timestamp is {header.max_timestamp}"
                )
            self._advance()


def verify_txn_index(file: ReadOnlyFile, base_offset: int, next_offset: int) -> Iterator[Finding]:
    """Verify a ``.txnindex``: markers rise and lie within the segment."""
    whole, torn = divmod(file.end, TXN_ENTRY.size)
    if torn:
        yield error(file.path, f"the last entry has {torn} bytes: it was cut off")
    last_marker = base_offset - 1
    for number, (version, _, first, last, stable) in enumerate(iter_entries(file, TXN_ENTRY, whole)):
        where = number * TXN_ENTRY.size
        if version != TXN_INDEX_VERSION:
            yield error(file.path, f"an entry has version {version}, not {TXN_INDEX_VERSION}", where)
        elif not last_marker < last < next_offset or first > last or stable > last + 1:
            text = (
                f"first offset {first}, marker at {last}, stable {stable} cannot be: the segment has offsets"
            )
            yield error(file.path, f"{text} {base_offset} to {next_offset - 1}", where)
        last_marker = last
