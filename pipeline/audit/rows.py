"""From the rows of ``kafka-log`` in ``mode=batches`` to the audit of what a worker reads, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

from splashdam.model.values import TopicPartition
from splashdam.pipeline.audit.batch import AuditedBatch
from splashdam.pipeline.audit.findings import AuditFinding, Kind
from splashdam.pipeline.audit.stretch import Stretch
from splashdam.pipeline.log_source.batches import read_batches
from splashdam.pipeline.log_source.reading import ReadingRules
from splashdam.pipeline.log_source.slices import LogSlice
from splashdam.storage.inspect.findings import Level
from splashdam.storage.segments.segment import LOG

if TYPE_CHECKING:
    import pyarrow as pa

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
"""Those of the source that the audit looks at."""

_TORN = "torn end: "


@attrs.frozen
class Plan:
    """What workers have to know besides their rows.

    Attributes:
        directories: of the partitions, as messages name them.
        compacted_until: offsets below which compaction may have removed records.
    """

    directories: Mapping[TopicPartition, str]
    compacted_until: Mapping[TopicPartition, int] = attrs.field(factory=dict)

    def path(self, where: TopicPartition, segment: int) -> str:
        """Of a segment's ``.log``."""
        return f"{self.directories[where]}/{segment:020d}{LOG}"


class Part(NamedTuple):
    """What one task has audited of a partition.

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
    """Reads and audits a slice of a log.

    Raises:
        KafkaStorageError: a file cannot be read.
    """
    return audit_batches(read_batches(whole, COLUMNS, ReadingRules(fails=False, headers_only=True)), plan)


def audit_batches(tables: Iterable[pa.RecordBatch], plan: Plan) -> list[Part]:
    """Audits batches in the order of the log; a part for each partition among them."""
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
    """What workers found, in the order of the log."""
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
        text = f"{size:,} bytes are no batch: {(problem or '').removeprefix(_TORN)}"
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
