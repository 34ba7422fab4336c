"""Which transactions ended how in a stretch of a log, and which are open behind it."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from splashdam.model.values import TopicPartition
from splashdam.pipeline.audit.batch import AuditedBatch
from splashdam.pipeline.audit.findings import AuditFinding, Kind
from splashdam.storage.inspect.verify import Level


@attrs.define
class Transactions:
    """The transactions of a stretch of a log.

    Attributes:
        where: the partition.
        markers: control batches.
        committed: those that commit.
        aborted: those that abort.
        open: of each producer id with an open transaction, its first batch.
        outside: of each producer id, its first batch before any of a transaction, if it is not of one: no
            transaction of a stretch before may be open there.
        ended: producer ids with a marker here, which ends what a stretch before began.
    """

    where: TopicPartition
    markers: int = 0
    committed: int = 0
    aborted: int = 0
    open: dict[int, AuditedBatch] = attrs.field(factory=dict)
    outside: dict[int, AuditedBatch] = attrs.field(factory=dict)
    ended: set[int] = attrs.field(factory=set)
    _seen: set[int] = attrs.field(factory=set)

    def add(self, batch: AuditedBatch) -> Iterator[AuditFinding]:
        """Takes in the next batch in the order of the log."""
        producer_id = batch.producer_id
        if batch.is_control:
            self.markers += 1
            self.committed += batch.commits is True
            self.aborted += batch.commits is False
            self.ended.add(producer_id)
            self.open.pop(producer_id, None)
        elif producer_id < 0:
            return
        elif batch.is_transactional:
            self.open.setdefault(producer_id, batch)
        else:
            if producer_id not in self._seen:
                self.outside.setdefault(producer_id, batch)
            yield from self._intrusion(batch)
            return
        self._seen.add(producer_id)

    def then(self, later: Transactions) -> Iterator[AuditFinding]:
        """Takes in the stretch that follows."""
        for producer_id, batch in later.outside.items():
            yield from self._intrusion(batch)
            if producer_id not in self._seen:
                self.outside.setdefault(producer_id, batch)
        for producer_id in later.ended:
            self.open.pop(producer_id, None)
        for producer_id, batch in later.open.items():
            self.open.setdefault(producer_id, batch)
        self.ended |= later.ended
        self._seen |= later._seen
        self.markers += later.markers
        self.committed += later.committed
        self.aborted += later.aborted

    def _intrusion(self, batch: AuditedBatch) -> Iterator[AuditFinding]:
        begun = self.open.get(batch.producer_id)
        if begun is not None:
            text = (
                f"producer {batch.producer_id}: a batch outside of its transaction, which is open since "
                f"offset {begun.base_offset}"
            )
            yield batch.finding(Kind.TRANSACTION, Level.ERROR, self.where, text)

    def still_open(self) -> Iterator[AuditFinding]:
        """At the end of the log: a note for each open transaction."""
        for producer_id, begun in sorted(self.open.items()):
            text = f"producer {producer_id}: its transaction is open"
            yield begun.finding(Kind.TRANSACTION, Level.NOTE, self.where, text)
