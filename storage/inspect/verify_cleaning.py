"""What compaction has done to the logs of a data directory, as far as its files tell."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.directories.checkpoints import CLEANER_OFFSET_NAME, decode_lines, parse_entry
from splashdam.storage.files.log_file import storage_errors
from splashdam.storage.inspect.findings import Finding, note
from splashdam.storage.inspect.read_only import read_small
from splashdam.storage.segments.segment import LOG
from splashdam.storage.topic_names import partition_of_directory


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
            yield _note(directory, offset)


def _cleaner_offsets(root: str) -> dict[TopicPartition, int]:
    path = os.path.join(root, CLEANER_OFFSET_NAME)
    try:
        return dict(parse_entry(line, path) for line in decode_lines(read_small(path), path))
    except KafkaStorageError:
        return {}


def _note(directory: str, first_dirty: int) -> Finding:
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
