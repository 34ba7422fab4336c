"""The audit: Spark's workers read batches as ``kafka-log`` with ``mode=batches`` does, and check files on a
disk."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.errors import WrongSettingError
from splashdam.model.options import MAX_LONG
from splashdam.model.values import TopicPartition
from splashdam.pipeline.audit.checks import Stretch
from splashdam.pipeline.audit.files import FileTask, check_files, check_root, file_tasks
from splashdam.pipeline.audit.findings import AuditedBatch, AuditFinding, Kind
from splashdam.pipeline.audit.report import AuditReport, report_of
from splashdam.pipeline.log_source.batches import read_batches
from splashdam.pipeline.log_source.directories import PartitionLog, find_logs
from splashdam.pipeline.log_source.filesystems import Location, location_of
from splashdam.pipeline.log_source.slices import LogSlice, ReadingRules, slices_of
from splashdam.storage.directories.checkpoints import CLEANER_OFFSET_NAME, decode_lines, parse_entry
from splashdam.storage.inspect.verify import Level
from splashdam.storage.segments.segment import LOG

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

ONLY_ON_DISK = (
    "not on a disk of this machine: the records within batches, indexes, snapshots and stray files were not "
    "checked; `splashdam verify-log` on a copy does that"
)
LEFT_OUT = "records within batches, indexes, snapshots and stray files were not checked, as requested"

SLICE_BYTES = 64 << 20
"""Approximate size of a task; a larger segment is cut where its index has a batch."""

_TASKS_PER_CORE = 4
_MOST_NAMED = 20
"""Topics in a message; a directory may have thousands."""


def audit(
    spark: SparkSession,
    path: str,
    *,
    compacted: Collection[str] = (),
    with_files: bool = True,
    storage: Mapping[str, str] | None = None,
) -> AuditReport:
    """Audit all partitions in a data directory, or one partition.

    Args:
        spark: the session; its workers must have access to the directory.
        path: of a data directory or a partition's directory; on a disk, or a URI such as ``s3://bucket/data``.
        compacted: topics whose gaps are explained by compaction, besides those in the directory's
            ``cleaner-offset-checkpoint``.
        with_files: whether to check records within batches and other files, which is most of the work; only
            on a disk.
        storage: settings of the filesystem, as ``kafka-log`` takes them behind ``storage.``.

    Raises:
        KafkaStorageError: the directory cannot be listed, or is not such a directory.
        WrongSettingError: it has no log of a topic of ``compacted``.
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
    """Yield slices with all batches of the logs, for workers.

    Raises:
        KafkaStorageError: an index cannot be read.
    """
    for log in logs:
        files, _ = log.location.open()
        yield from slices_of(log, files, log.log_start_offset, MAX_LONG, max_bytes=SLICE_BYTES)


def _check_batches(spark: SparkSession, logs: Iterable[PartitionLog], plan: Plan) -> list[Stretch]:
    """Read and audit batches in the workers, so that batches do not cross into Spark's JVM."""
    pieces = list(slices(logs))
    if not pieces:
        return []
    parts = spark.sparkContext.parallelize(pieces, len(pieces)).flatMap(partial(audit_slice, plan=plan))
    return in_order(parts.collect())


def plan_of(logs: Sequence[PartitionLog], compacted: Collection[str]) -> Plan:
    """Return what workers must know about the logs.

    Args:
        logs: as they were listed.
        compacted: topics from which compaction may have removed any record.

    Raises:
        WrongSettingError: the directory has no log of a topic of ``compacted``.
    """
    topics = sorted({log.where.topic for log in logs})
    if missing := sorted(set(compacted) - set(topics)):
        there = ", ".join(topics[:_MOST_NAMED]) + (", …" if topics[_MOST_NAMED:] else "")
        raise WrongSettingError(
            "compacted",
            f"the directory has no such topic, it has {there or 'none'}",
            given=", ".join(missing),
        )
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
    """Return how far each partition was compacted; nothing if the checkpoint is missing or damaged."""
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
    dealt = [tasks[number::pieces] for number in range(pieces)]  # deals large and small tasks to each worker
    found = context.parallelize(dealt, pieces).flatMap(_check_all).collect()
    return list(found)


def _check_all(tasks: Iterable[FileTask]) -> list[AuditFinding]:
    return [finding for task in tasks for finding in check_files(task)]


COLUMNS = (
    "topic",
    "partition",
    "segment",
    "position",
    "sizeInBytes",
    "baseOffset",
    "lastOffset",
    "recordCount",
    "compression",
    "maxTimestamp",
    "producerId",
    "producerEpoch",
    "baseSequence",
    "isTransactional",
    "isControl",
    "controlType",
    "crcValid",
    "problem",
)
"""Columns of the source that the audit needs."""

_TORN = "torn end: "


@attrs.frozen
class Plan:
    """What workers must know besides their slices.

    Attributes:
        directories: of the partitions, as shown in messages.
        compacted_until: offsets below which compaction may have removed records.
    """

    directories: Mapping[TopicPartition, str]
    compacted_until: Mapping[TopicPartition, int] = attrs.field(factory=dict)

    def path(self, where: TopicPartition, segment: int) -> str:
        """Return the path of a segment's ``.log``, as shown in messages."""
        return f"{self.directories[where]}/{segment:020d}{LOG}"


class Part(NamedTuple):
    """The part of a partition that one task audited.

    Attributes:
        where: the partition.
        segment: base offset of the segment where the part begins.
        position: of its first batch there.
        stretch: the audit.
    """

    where: TopicPartition
    segment: int
    position: int
    stretch: Stretch


def audit_slice(whole: LogSlice, plan: Plan) -> list[Part]:
    """Read and audit a slice of a log.

    Raises:
        KafkaStorageError: a file cannot be read.
    """
    return audit_batches(read_batches(whole, COLUMNS, ReadingRules(fails=False, headers_only=True)), plan)


def audit_batches(tables: Iterable[pa.RecordBatch], plan: Plan) -> list[Part]:
    """Audit batches in the order of the log, and return a part for each partition."""
    parts: dict[TopicPartition, Part] = {}
    for table in tables:
        for row in _rows(table):
            where, segment, position = TopicPartition(row[0], row[1]), row[2], row[3]
            if where not in parts:
                stretch = Stretch(where, plan.compacted_until.get(where, 0))
                parts[where] = Part(where, segment, position, stretch)
            _take(parts[where].stretch, plan.path(where, segment), row)
    return list(parts.values())


def in_order(parts: Iterable[Part]) -> list[Stretch]:
    """Return the stretches in the order of the log."""
    return [part.stretch for part in sorted(parts, key=lambda part: part[:3])]


def _rows(table: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    import pyarrow as pa

    columns = [table.column(name) for name in COLUMNS]
    times = COLUMNS.index("maxTimestamp")
    columns[times] = columns[times].cast(pa.int64())
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _take(stretch: Stretch, path: str, row: tuple[Any, ...]) -> None:
    (_, _, _, position, size, base, last, count, codec, time_us, producer, epoch, sequence, *rest) = row
    is_transactional, is_control, control_type, crc_ok, problem = rest
    is_torn = problem is not None and problem.startswith(_TORN)
    if base is None or is_torn or (problem is not None and crc_ok is not False):
        text = f"{size:,} bytes are not a batch: {(problem or '').removeprefix(_TORN)}"
        stretch.note(AuditFinding(Kind.DAMAGE, Level.ERROR, stretch.where, path, position, None, text))
        return
    stretch.add(
        AuditedBatch(
            path=path,
            position=position,
            size_bytes=size,
            base_offset=base,
            last_offset=last,
            record_count=-1 if count is None else count,
            codec=codec,
            max_timestamp_ms=-1 if time_us is None else time_us // 1000,
            producer_id=-1 if producer is None else producer,
            producer_epoch=-1 if epoch is None else epoch,
            base_sequence=-1 if sequence is None else sequence,
            is_transactional=is_transactional,
            is_control=is_control,
            crc_ok=crc_ok,
            commits={"COMMIT": True, "ABORT": False}.get(control_type),
        )
    )
