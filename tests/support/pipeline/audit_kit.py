"""Batches as the audit sees them, made up for its tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from splashdam.model.options import MAX_LONG
from splashdam.model.values import TopicPartition
from splashdam.pipeline.audit.checks import Stretch
from splashdam.pipeline.audit.files import check_files, check_root, file_tasks
from splashdam.pipeline.audit.findings import MAX_SEQUENCE, AuditedBatch, Kind
from splashdam.pipeline.audit.report import AuditReport, report_of
from splashdam.pipeline.audit.run import audit_slice, in_order, plan_of
from splashdam.pipeline.log_source.directories import find_logs
from splashdam.pipeline.log_source.filesystems import location_of
from splashdam.pipeline.log_source.slices import slices_of

WHERE = TopicPartition("t", 0)


def batch(base: int, count: int = 1, **fields: Any) -> AuditedBatch:
    """Records ``base`` to ``base + count - 1``, at a position that tells the offset."""
    fields = {"path": "t-0/0.log", "position": base * 100, "size_bytes": 100, "record_count": count, **fields}
    return AuditedBatch(base_offset=base, last_offset=base + count - 1, **fields)


def data(base: int, sequence: int, count: int = 1, **fields: Any) -> AuditedBatch:
    """The same, of producer 7 in epoch 0."""
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence & MAX_SEQUENCE, **fields}
    return batch(base, count, **fields)


def marker(base: int, *, commits: bool = True, epoch: int = 0, producer_id: int = 7) -> AuditedBatch:
    """The end of a transaction."""
    return batch(
        base,
        producer_id=producer_id,
        producer_epoch=epoch,
        is_transactional=True,
        is_control=True,
        commits=commits,
    )


def stretch(*batches: AuditedBatch, compacted_until: int = 0) -> Stretch:
    """The audit of these."""
    whole = Stretch(WHERE, compacted_until)
    for each in batches:
        whole.add(each)
    return whole


def found(of: Stretch) -> list[tuple[Kind, int | None, str]]:
    """Kind, offset and text of each finding."""
    return [(finding.kind, finding.offset, finding.text) for finding in of.findings]


def audited(path: Path, *, compacted: tuple[str, ...] = (), slice_bytes: int = 1 << 20) -> AuditReport:
    """The audit of a directory as Spark runs it, in this process.

    Args:
        path: a data directory.
        compacted: see ``audit``.
        slice_bytes: about how much a task reads; small ones cut segments where their index allows it.
    """
    logs = find_logs([location_of(str(path))], lambda _: True)
    plan = plan_of(logs, compacted)
    parts = [
        part
        for log in logs
        for piece in slices_of(
            log, log.location.open()[0], log.log_start_offset, MAX_LONG, max_bytes=slice_bytes
        )
        for part in audit_slice(piece, plan)
    ]
    stretches = [Stretch(log.where, plan.compacted_until[log.where]) for log in logs] + in_order(parts)
    tasks = file_tasks(log.directory for log in logs)
    of_files = [finding for task in tasks for finding in check_files(task)]
    return report_of(str(path), stretches, check_root(str(path)) + of_files)
