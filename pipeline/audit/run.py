"""The audit itself: Spark's workers read batches as ``kafka-log`` does, and the files of a disk beside it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.options import MAX_LONG
from splashdam.model.values import TopicPartition
from splashdam.pipeline.audit.files import FileTask, check_files, check_root, file_tasks
from splashdam.pipeline.audit.findings import AuditFinding
from splashdam.pipeline.audit.report import AuditReport, report_of
from splashdam.pipeline.audit.rows import Plan, audit_slice, in_order
from splashdam.pipeline.audit.stretch import Stretch
from splashdam.pipeline.log_source.directories import PartitionLog, find_logs
from splashdam.pipeline.log_source.filesystems import Location, location_of
from splashdam.pipeline.log_source.slices import LogSlice, slices_of
from splashdam.storage.directories.checkpoints import CLEANER_OFFSET_NAME, decode_lines, parse_entry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONLY_ON_DISK = (
    "not on a disk of this machine: the records within batches, indexes, snapshots and stray files were not "
    "looked at; `splashdam verify-log` on a copy does"
)
LEFT_OUT = "records within batches, indexes, snapshots and stray files were left out, as was asked for"

SLICE_BYTES = 64 << 20
"""About so much of a log is one task; a larger segment is cut where its index allows it."""

_TASKS_PER_CORE = 4


def audit(
    spark: SparkSession,
    path: str,
    *,
    compacted: Collection[str] = (),
    with_files: bool = True,
    storage: Mapping[str, str] | None = None,
) -> AuditReport:
    """Audits all partitions in a data directory, or one partition.

    Args:
        spark: the session; its workers must see the directory.
        path: of a data directory or of a partition's; on a disk, or a URI such as ``s3://bucket/data``.
        compacted: topics whose gaps are explained by compaction, besides what the directory's
            ``cleaner-offset-checkpoint`` names.
        with_files: whether to look into batches and at the other files, which is most of the work. It is done
            on a disk alone.
        storage: settings of the filesystem, as ``kafka-log`` takes them behind ``storage.``.

    Raises:
        KafkaStorageError: it cannot be listed, or is neither.
    """
    started = time.monotonic()
    location = location_of(path, tuple(sorted((storage or {}).items())))
    logs = find_logs([location], lambda _: True)
    plan = plan_of(logs, compacted)
    stretches = [Stretch(log.where, plan.compacted_until.get(log.where, 0)) for log in logs]
    stretches += _check_batches(spark, logs, plan)
    skipped, of_files = [], list[AuditFinding]()
    if not with_files:
        skipped.append(LEFT_OUT)
    elif not _is_on_disk(location):
        skipped.append(ONLY_ON_DISK)
    else:
        of_files = check_root(location.uri) + _check_files(spark, [log.directory for log in logs])
    return report_of(path, stretches, of_files, skipped=skipped, seconds=time.monotonic() - started)


def slices(logs: Iterable[PartitionLog]) -> Iterator[LogSlice]:
    """All batches of the logs, in parts for workers.

    Raises:
        KafkaStorageError: an index cannot be read.
    """
    for log in logs:
        files, _ = log.location.open()
        yield from slices_of(log, files, log.log_start_offset, MAX_LONG, max_bytes=SLICE_BYTES)


def _check_batches(spark: SparkSession, logs: Iterable[PartitionLog], plan: Plan) -> list[Stretch]:
    """Workers read and audit in one go: batches would cross into Spark's JVM for nothing."""
    pieces = list(slices(logs))
    if not pieces:
        return []
    parts = spark.sparkContext.parallelize(pieces, len(pieces)).flatMap(partial(audit_slice, plan=plan))
    return in_order(parts.collect())


def plan_of(logs: Sequence[PartitionLog], compacted: Collection[str]) -> Plan:
    """What workers have to know of these logs.

    Args:
        logs: as they were listed.
        compacted: topics of which compaction may have removed any record.
    """
    cleaned: dict[str, dict[TopicPartition, int]] = {}
    until = {}
    for log in logs:
        root = log.directory.rpartition("/")[0]
        if root not in cleaned:
            cleaned[root] = _cleaner_offsets(log.location, root)
        until[log.where] = MAX_LONG if log.where.topic in compacted else cleaned[root].get(log.where, 0)
    shown = {log.where: log.location.open()[0].shown(log.directory) for log in logs}
    return Plan(shown, until)


def _cleaner_offsets(location: Location, root: str) -> dict[TopicPartition, int]:
    """How far each partition was compacted; nothing where the checkpoint is missing or damaged."""
    path = f"{root}/{CLEANER_OFFSET_NAME}"
    try:
        data = location.open()[0].read(path)
        return dict(parse_entry(line, path) for line in decode_lines(data, path)) if data else {}
    except KafkaStorageError:
        return {}


def _is_on_disk(location: Location) -> bool:
    return location.open()[0].is_local


def _check_files(spark: SparkSession, directories: Iterable[str]) -> list[AuditFinding]:
    tasks = file_tasks(directories)
    context = spark.sparkContext
    pieces = min(len(tasks), context.defaultParallelism * _TASKS_PER_CORE)
    if not pieces:
        return []
    dealt = [tasks[number::pieces] for number in range(pieces)]  # large and small ones for each
    found = context.parallelize(dealt, pieces).flatMap(_check_all).collect()
    return list(found)


def _check_all(tasks: Iterable[FileTask]) -> list[AuditFinding]:
    return [finding for task in tasks for finding in check_files(task)]
