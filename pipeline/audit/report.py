"""What an audit says in the end: totals, findings, and what was not looked at."""

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
        source: what was audited, as it was named.
        partitions: the audit of each, by topic and partition.
        findings: errors first, then by partition and offset.
        skipped: what was not looked at, and why; empty where all was.
        seconds: how long it took.
    """

    source: str
    partitions: Sequence[Stretch]
    findings: Sequence[AuditFinding]
    skipped: Sequence[str] = ()
    seconds: float = 0.0

    @property
    def records(self) -> int:
        """In all batches, without the markers of transactions."""
        return sum(partition.figures.records for partition in self.partitions)

    @property
    def batches(self) -> int:
        """Of all partitions."""
        return sum(partition.figures.batches for partition in self.partitions)

    @property
    def size_bytes(self) -> int:
        """Of all batches."""
        return sum(partition.figures.size_bytes for partition in self.partitions)

    @property
    def gaps(self) -> int:
        """Where offsets are missing and nothing explains it."""
        return sum(partition.offsets.gaps for partition in self.partitions)

    @property
    def duplicates(self) -> int:
        """Batches whose offsets, or whose sequence numbers, were there before."""
        repeats = (finding.kind is Kind.SEQUENCE and " again; " in finding.text for finding in self.findings)
        return sum(partition.offsets.duplicates for partition in self.partitions) + sum(repeats)

    @property
    def errors(self) -> int:
        """All that makes the audit fail."""
        dropped = sum(partition.dropped_errors for partition in self.partitions)
        return sum(finding.is_error for finding in self.findings) + dropped

    @property
    def is_sound(self) -> bool:
        """Whether there is no error."""
        return not self.errors


def report_of(
    source: str,
    stretches: Iterable[Stretch],
    of_files: Iterable[AuditFinding],
    *,
    skipped: Sequence[str] = (),
    seconds: float = 0.0,
) -> AuditReport:
    """Join what workers found.

    Args:
        source: what was audited.
        stretches: of any partitions; those of one partition in the order of the log.
        of_files: what was found in the files around the batches.
        skipped: what was not looked at.
        seconds: how long it took.
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
