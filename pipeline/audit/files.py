"""Checks of a log's files on a disk, one segment at a time, so that workers can share them.

The checks are those of ``splashdam verify-log``: records within batches, indexes, snapshots, stray files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

import attrs

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.pipeline.audit.findings import AuditFinding, Kind
from splashdam.storage.files.log_file import storage_errors
from splashdam.storage.inspect.verify import (
    Finding,
    Level,
    SegmentVerifier,
    segment_bases,
    verify_beside_segments,
    verify_root,
)
from splashdam.storage.segments.segment import LOG
from splashdam.storage.topic_names import partition_of_directory

BESIDE = -1
"""Instead of a base offset: all files of the partition but its segments."""

_OFFSET = re.compile(r"the batch at offset (\d+): ")


@attrs.frozen
class FileTask:
    """A unit of work.

    Attributes:
        directory: of the partition.
        base_offset: of the segment, or `BESIDE`.
        size_bytes: number of bytes to read.
    """

    directory: str
    base_offset: int
    size_bytes: int


def file_tasks(directories: Iterable[str]) -> list[FileTask]:
    """Return the work for some partitions, largest first, so that no worker starts a large one at the end.

    Raises:
        KafkaStorageError: a directory cannot be listed.
    """
    tasks = [task for directory in directories for task in _tasks_of(directory)]
    return sorted(tasks, key=lambda task: -task.size_bytes)


def _tasks_of(directory: str) -> Iterator[FileTask]:
    with storage_errors("list", directory):
        names = os.listdir(directory)
        yield FileTask(directory, BESIDE, 0)
        for base in segment_bases(names):
            size = os.path.getsize(os.path.join(directory, f"{base:020d}{LOG}"))
            yield FileTask(directory, base, size)


def check_files(task: FileTask) -> list[AuditFinding]:
    """Do a unit of work; a file that cannot be read is a finding."""
    where = partition_of_directory(os.path.basename(os.path.abspath(task.directory)))
    where = where or TopicPartition(os.path.basename(task.directory), 0)
    try:
        return [_audited(finding, where) for finding in _findings(task)]
    except KafkaStorageError as failure:
        return [AuditFinding(Kind.FILE, Level.ERROR, where, task.directory, None, None, failure.message)]


def check_root(path: str) -> list[AuditFinding]:
    """Check the checkpoint files of a data directory."""
    return [_audited(finding, None) for finding in verify_root(path)]


def _findings(task: FileTask) -> Iterator[Finding]:
    if task.base_offset == BESIDE:
        yield from verify_beside_segments(task.directory)
        return
    names = os.listdir(task.directory)
    # Gaps are found among the batches, where compaction is known; the verifier reports them as notes.
    segment = SegmentVerifier(
        task.directory, task.base_offset, names, next_offset=None, contiguous=False, on_bytes=lambda _: None
    )
    yield from (finding for finding in segment.run() if not _is_gap(finding))


def _is_gap(finding: Finding) -> bool:
    return finding.level is Level.NOTE and (
        finding.text.startswith("no offsets from") or " records with offsets " in finding.text
    )


def _audited(finding: Finding, where: TopicPartition | None) -> AuditFinding:
    named = _OFFSET.match(finding.text)
    text = finding.text if named is None else finding.text[named.end() :]
    offset = None if named is None else int(named[1])
    return AuditFinding(Kind.FILE, finding.level, where, finding.path, finding.position, offset, text)


def without_repeats(found: list[AuditFinding], of_files: Iterable[AuditFinding]) -> list[AuditFinding]:
    """Return all findings; one of files is dropped if another finding names the same byte of the same
    file."""
    known = {(finding.path, finding.position) for finding in found if finding.position is not None}
    return found + [finding for finding in of_files if (finding.path, finding.position) not in known]
