"""The audit of a stretch of one partition: what a worker finds in its part of a log, and the driver joins."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from splashdam.model.values import TopicPartition
from splashdam.pipeline.audit.batch import AuditedBatch
from splashdam.pipeline.audit.figures import Figures
from splashdam.pipeline.audit.findings import AuditFinding, Kind
from splashdam.pipeline.audit.offsets import Offsets
from splashdam.pipeline.audit.sequences import Sequences
from splashdam.pipeline.audit.transactions import Transactions
from splashdam.storage.inspect.verify import Level
from splashdam.storage.topic_names import INTERNAL_TOPICS

KEPT_FINDINGS = 1000
"""Of one stretch; the others are counted, since damage can make thousands of one kind."""


@attrs.define
class Stretch:
    """A part of a partition, told batch by batch in the order of the log.

    Cut anywhere and joined with ``then``, the parts give what the whole would have given.

    Args:
        where: the partition.
        compacted_until: below this offset compaction may have removed records, 0 for nowhere.

    Attributes:
        offsets: gaps and duplicates.
        sequences: those of idempotent producers.
        transactions: ended and open ones.
        figures: totals and histograms.
        bad_checksums: batches whose checksum is wrong.
        findings: what was found, the first `KEPT_FINDINGS` of it.
        dropped_errors: errors that were found besides.
    """

    where: TopicPartition
    compacted_until: int = 0
    offsets: Offsets = attrs.field(init=False)
    sequences: Sequences = attrs.field(init=False)
    transactions: Transactions = attrs.field(init=False)
    figures: Figures = attrs.field(factory=Figures, init=False)
    bad_checksums: int = attrs.field(default=0, init=False)
    findings: list[AuditFinding] = attrs.field(factory=list, init=False)
    dropped_errors: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.offsets = Offsets(self.where, self.compacted_until)
        self.sequences = Sequences(self.where, self.compacted_until)
        self.transactions = Transactions(self.where)

    def add(self, batch: AuditedBatch) -> None:
        """Takes in the next batch in the order of the log."""
        self.figures.add(batch)
        if batch.crc_ok is False:
            self.bad_checksums += 1
            text = "the batch has a wrong checksum"
            self._note([batch.finding(Kind.CHECKSUM, Level.ERROR, self.where, text)])
        self._note(self.offsets.add(batch))
        if self.where.topic not in INTERNAL_TOPICS:  # their coordinators number no batches
            self._note(self.sequences.add(batch))
        self._note(self.transactions.add(batch))

    def then(self, later: Stretch) -> None:
        """Takes in the stretch that follows."""
        self._note(self.offsets.then(later.offsets))
        self._note(self.sequences.then(later.sequences))
        self._note(self.transactions.then(later.transactions))
        self._note(later.findings)
        self.dropped_errors += later.dropped_errors
        self.bad_checksums += later.bad_checksums
        self.figures.merge(later.figures)

    def note(self, finding: AuditFinding) -> None:
        """Adds what was found where there is no batch."""
        self._note([finding])

    def _note(self, findings: Iterable[AuditFinding]) -> None:
        for finding in findings:
            if len(self.findings) < KEPT_FINDINGS:
                self.findings.append(finding)
            else:
                self.dropped_errors += finding.is_error
