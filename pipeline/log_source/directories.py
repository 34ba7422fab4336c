"""Which partitions a directory has, and their segments: only names and lengths are read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import attrs

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import MAX_LONG
from splashdam.model.values import TopicPartition
from splashdam.pipeline.log_source.filesystems import Entry, Location, LogFiles
from splashdam.storage.directories.checkpoints import (
    CLEANER_OFFSET_NAME,
    HIGH_WATERMARK_NAME,
    LOG_START_NAME,
    RECOVERY_POINT_NAME,
    decode_lines,
    parse_entry,
)
from splashdam.storage.directories.partition_metadata import FILE_NAME as PARTITION_METADATA_NAME
from splashdam.storage.segments.segment import INDEX, LOG, SNAPSHOT, SWAP, TIME_INDEX, TXN_INDEX
from splashdam.storage.topic_names import (
    METADATA_TOPIC,
    partition_of_directory,
    suffix_of_renamed_directory,
)

LARGEST_SEGMENT_BYTES = (1 << 31) - 1
"""Positions in an offset index have 31 bits."""

_DIGITS = 20
_LISTED_AT_A_TIME = 16
_OF_A_ROOT = frozenset(
    {CLEANER_OFFSET_NAME, HIGH_WATERMARK_NAME, LOG_START_NAME, RECOVERY_POINT_NAME, "meta.properties"}
)


@attrs.frozen
class Segment:
    """One segment as it was listed.

    Attributes:
        stem: the path of its files, without a suffix.
        base_offset: the number in their names.
        size_bytes: of the ``.log``.
        others: the lengths of the indexes that exist, by suffix.
    """

    stem: str
    base_offset: int
    size_bytes: int
    others: Mapping[str, int]

    @property
    def log_path(self) -> str:
        return self.stem + LOG


@attrs.frozen
class PartitionLog:
    """The log of one partition as it was listed.

    Attributes:
        where: topic and partition.
        location: opens its filesystem.
        directory: its path there.
        segments: by base offset; the last is the active one.
        snapshots: the offsets of its producer snapshots, ascending.
        log_start_offset: earlier records are deleted: DeleteRecords or retention moved it.
    """

    where: TopicPartition
    location: Location
    directory: str
    segments: tuple[Segment, ...]
    snapshots: tuple[int, ...]
    log_start_offset: int

    def snapshot_path(self, offset: int) -> str:
        """Return the path of the producer snapshot at an offset."""
        return f"{self.directory}/{offset:0{_DIGITS}d}{SNAPSHOT}"

    def is_active(self, segment: Segment) -> bool:
        """Whether a broker may be writing to it: its end may be torn."""
        return segment is self.segments[-1]


def find_logs(locations: Iterable[Location], wanted: Callable[[TopicPartition], bool]) -> list[PartitionLog]:
    """Return the logs of all wanted partitions, by topic and partition.

    Args:
        locations: data directories, or directories of single partitions.
        wanted: which partitions to list.

    Raises:
        KafkaStorageError: a location cannot be listed, or is neither; a compaction is not finished; a
            ``.log`` cannot be a segment.
        KafkaConfigurationError: two locations have the same partition.
    """
    found: dict[TopicPartition, PartitionLog] = {}
    for location in locations:
        for log in _logs_in(location, wanted):
            other = found.setdefault(log.where, log)
            if other is not log:
                raise KafkaConfigurationError(
                    f"{log.where} is in {other.directory} and in {log.directory}; name only one in path"
                )
    return [found[where] for where in sorted(found)]


def _logs_in(location: Location, wanted: Callable[[TopicPartition], bool]) -> Iterator[PartitionLog]:
    files, root = location.open()
    entries = files.list(root)
    if any(_is_of_a_partition(entry.name) for entry in entries):
        where = partition_of_directory(root.rpartition("/")[2])
        if where is None:
            raise KafkaConfigurationError(
                f"{files.shown(root)} has segments, but not the name of a partition; rename it to <topic>-0"
            )
        if wanted(where):
            starts = _log_starts(files, root.rpartition("/")[0])
            yield _log(location, root, where, entries, starts)
        return
    partitions = {f"{root}/{entry.name}": where for entry in entries if (where := _partition(entry))}
    if not partitions and not any(entry.name in _OF_A_ROOT for entry in entries):
        raise KafkaStorageError(
            f"{files.shown(root)} is neither a data directory nor the directory of a partition"
        )
    chosen = [path for path, where in partitions.items() if wanted(where)]
    starts = _log_starts(files, root) if chosen else {}
    with ThreadPoolExecutor(_LISTED_AT_A_TIME) as threads:  # an object store serves many requests at once
        for path, listed in zip(chosen, threads.map(files.list, chosen), strict=True):
            if any(_is_of_a_partition(entry.name) for entry in listed):
                yield _log(location, path, partitions[path], listed, starts)


def _partition(entry: Entry) -> TopicPartition | None:
    where = partition_of_directory(entry.name) if entry.is_directory else None
    if where is None or where.topic == METADATA_TOPIC or suffix_of_renamed_directory(entry.name):
        return None
    return where


def _is_of_a_partition(name: str) -> bool:
    return name == PARTITION_METADATA_NAME or _base_offset(name, LOG) is not None


def _log(
    location: Location,
    directory: str,
    where: TopicPartition,
    entries: list[Entry],
    starts: Mapping[TopicPartition, int],
) -> PartitionLog:
    sizes = {entry.name: entry.size_bytes for entry in entries if not entry.is_directory}
    _check_compaction(directory, sizes)
    bases = _numbers(sizes, LOG)
    for base in bases:
        _check_segment(directory, base, sizes[f"{base:0{_DIGITS}d}{LOG}"])
    segments = tuple(
        Segment(
            f"{directory}/{base:0{_DIGITS}d}",
            base,
            sizes[f"{base:0{_DIGITS}d}{LOG}"],
            {
                suffix: size
                for suffix in (INDEX, TIME_INDEX, TXN_INDEX)
                if (size := sizes.get(f"{base:0{_DIGITS}d}{suffix}")) is not None
            },
        )
        for base in bases
    )
    first = segments[0].base_offset if segments else 0
    start = max(first, starts.get(where, 0))
    return PartitionLog(where, location, directory, segments, tuple(_numbers(sizes, SNAPSHOT)), start)


def _check_compaction(directory: str, names: Collection[str]) -> None:
    """Refuse a log with a ``.swap`` file: it replaces segments that are removed one by one, and some may be
    gone."""
    for base in _numbers(names, LOG + SWAP):
        raise KafkaStorageError(
            f"{directory} holds {base:0{_DIGITS}d}{LOG}{SWAP}, of a compaction that is not finished: "
            "segments that it replaces may be gone. What to do: start a broker once, which finishes it, or "
            "read again if one is running"
        )


def _check_segment(directory: str, base_offset: int, size_bytes: int) -> None:
    name = f"{directory}/{base_offset:0{_DIGITS}d}{LOG}"
    if base_offset > MAX_LONG:
        raise KafkaStorageError(f"{name}: its name is larger than any offset. What to do: move it away")
    if size_bytes > LARGEST_SEGMENT_BYTES:
        raise KafkaStorageError(
            f"{name} has {size_bytes:,} bytes, and no segment has more than {LARGEST_SEGMENT_BYTES:,}. "
            "What to do: move it away"
        )


def _numbers(names: Iterable[str], suffix: str) -> list[int]:
    return sorted(number for name in names if (number := _base_offset(name, suffix)) is not None)


def _base_offset(name: str, suffix: str) -> int | None:
    """Return the number in a file's name. Files that end in ``.deleted``, ``.cleaned`` or ``.swap`` are
    leftovers."""
    digits = name.removesuffix(suffix)
    is_one = len(name) == _DIGITS + len(suffix) == len(digits) + len(suffix)
    return int(digits) if is_one and digits.isascii() and digits.isdigit() else None


def _log_starts(files: LogFiles, root: str) -> dict[TopicPartition, int]:
    path = f"{root}/{LOG_START_NAME}"
    data = files.read(path)
    if not data:  # Kafka creates the file empty and writes it later
        return {}
    return dict(parse_entry(line, path) for line in decode_lines(data, path))
