"""The report of an audit: totals, findings, and what was not checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from splashdam.model.values import TopicPartition
from splashdam.pipeline.audit.checks import Stretch
from splashdam.pipeline.audit.files import without_repeats
from splashdam.pipeline.audit.findings import AuditFinding, Kind


@attrs.frozen
class AuditReport:
    """The outcome of an audit.

    Attributes:
        source: the directory or URI, as given.
        partitions: the audits of the partitions, by topic and partition.
        findings: errors first, then by partition and offset.
        skipped: what was not checked, and why.
        seconds: duration of the audit.
    """

    source: str
    partitions: Sequence[Stretch]
    findings: Sequence[AuditFinding]
    skipped: Sequence[str] = ()
    seconds: float = 0.0

    @property
    def records(self) -> int:
        """Number of records, without transaction markers."""
        return sum(partition.figures.records for partition in self.partitions)

    @property
    def batches(self) -> int:
        return sum(partition.figures.batches for partition in self.partitions)

    @property
    def size_bytes(self) -> int:
        return sum(partition.figures.size_bytes for partition in self.partitions)

    @property
    def gaps(self) -> int:
        """Number of gaps in the offsets that nothing explains."""
        return sum(partition.offsets.gaps for partition in self.partitions)

    @property
    def duplicates(self) -> int:
        """Number of batches with offsets or sequence numbers that occurred before."""
        repeats = (finding.kind is Kind.SEQUENCE and " again; " in finding.text for finding in self.findings)
        return sum(partition.offsets.duplicates for partition in self.partitions) + sum(repeats)

    @property
    def errors(self) -> int:
        dropped = sum(partition.dropped_errors for partition in self.partitions)
        return sum(finding.is_error for finding in self.findings) + dropped

    @property
    def is_sound(self) -> bool:
        """Whether there are no errors."""
        return not self.errors


def report_of(
    source: str,
    stretches: Iterable[Stretch],
    of_files: Iterable[AuditFinding],
    *,
    skipped: Sequence[str] = (),
    seconds: float = 0.0,
) -> AuditReport:
    """Join the results of the workers.

    Args:
        source: the directory or URI, as given.
        stretches: of any partitions; those of one partition in the order of the log.
        of_files: findings in the files around the batches.
        skipped: what was not checked.
        seconds: duration of the audit.
    """
    joined: dict[TopicPartition, Stretch] = {}
    for stretch in stretches:
        whole = joined.setdefault(stretch.where, Stretch(stretch.where, stretch.compacted_until))
        whole.then(stretch)
    partitions = [joined[where] for where in sorted(joined)]
    found = [finding for partition in partitions for finding in partition.findings]
    found += [finding for partition in partitions for finding in partition.transactions.still_open()]
    findings = sorted(without_repeats(found, of_files), key=_order)
    return AuditReport(source, partitions, findings, skipped, seconds)


def _order(finding: AuditFinding) -> tuple[object, ...]:
    return not finding.is_error, finding.where or ("", -1), finding.offset or 0, finding.position or 0
