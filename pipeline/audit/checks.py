"""The audit of a stretch of one partition: offsets, sequence numbers, transactions, totals; batch by batch.

A log can be cut anywhere: workers audit their stretches, and the driver joins them with ``then``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import attrs

from splashdam.model.values import TopicPartition
from splashdam.pipeline.audit.figures import Figures
from splashdam.pipeline.audit.findings import MAX_SEQUENCE, AuditedBatch, AuditFinding, Kind
from splashdam.storage.inspect.verify import Level
from splashdam.storage.topic_names import INTERNAL_TOPICS

KEPT_FINDINGS = 1000
"""Findings that are kept per stretch; further ones are only counted, because damage can cause thousands."""


@attrs.define
class Stretch:
    """The audit of a part of a partition, fed batch by batch in the order of the log.

    A log that is cut anywhere, and whose parts are joined with ``then``, gives the same result as the whole.

    Args:
        where: the partition.
        compacted_until: compaction may have removed records below this offset; 0 if there was none.

    Attributes:
        offsets: gaps and duplicates.
        sequences: those of idempotent producers.
        transactions: ended and open transactions.
        figures: totals and histograms.
        bad_checksums: batches with a wrong checksum.
        findings: the first `KEPT_FINDINGS`.
        dropped_errors: number of further errors.
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
        """Add the next batch in the order of the log."""
        self.figures.add(batch)
        if batch.crc_ok is False:
            self.bad_checksums += 1
            text = "the batch has a wrong checksum"
            self._note([batch.finding(Kind.CHECKSUM, Level.ERROR, self.where, text)])
        self._note(self.offsets.add(batch))
        if self.where.topic not in INTERNAL_TOPICS:  # coordinators write them without sequence numbers
            self._note(self.sequences.add(batch))
        self._note(self.transactions.add(batch))

    def then(self, later: Stretch) -> None:
        """Join the stretch that follows."""
        self._note(self.offsets.then(later.offsets))
        self._note(self.sequences.then(later.sequences))
        self._note(self.transactions.then(later.transactions))
        self._note(later.findings)
        self.dropped_errors += later.dropped_errors
        self.bad_checksums += later.bad_checksums
        self.figures.merge(later.figures)

    def note(self, finding: AuditFinding) -> None:
        """Add a finding without a batch."""
        self._note([finding])

    def _note(self, findings: Iterable[AuditFinding]) -> None:
        for finding in findings:
            if len(self.findings) < KEPT_FINDINGS:
                self.findings.append(finding)
            else:
                self.dropped_errors += finding.is_error


DRAWN_HOLES = 1000
"""Holes that are kept for the picture; all are counted."""


class Hole(NamedTuple):
    """A range of missing offsets.

    Attributes:
        first: the first missing offset.
        end: after the last one.
        is_loss: False if compaction explains it.
    """

    first: int
    end: int
    is_loss: bool


@attrs.define
class Offsets:
    """The offsets of a stretch of a log.

    Attributes:
        where: the partition.
        compacted_until: compaction may have removed records below this offset.
        first: the first batch, None before there is one.
        next_offset: after the last batch so far.
        gaps: number of holes that nothing explains.
        duplicates: batches that begin below the end of an earlier one.
        lost_offsets: number of offsets in the gaps.
        compacted_offsets: number of offsets that compaction removed.
        holes: the first `DRAWN_HOLES` holes between batches.
    """

    where: TopicPartition
    compacted_until: int = 0
    first: AuditedBatch | None = None
    next_offset: int = 0
    gaps: int = 0
    duplicates: int = 0
    lost_offsets: int = 0
    compacted_offsets: int = 0
    holes: list[Hole] = attrs.field(factory=list)

    def add(self, batch: AuditedBatch) -> Iterator[AuditFinding]:
        """Add the next batch in the order of the log."""
        if self.first is None:
            self.first, self.next_offset = batch, batch.base_offset
        yield from self._join(batch)
        if batch.record_count >= 0:
            yield from self._inside(batch)
        self.next_offset = max(self.next_offset, batch.last_offset + 1)

    def then(self, later: Offsets) -> Iterator[AuditFinding]:
        """Join the stretch that follows."""
        if later.first is None:
            return
        if self.first is None:
            self.first, self.next_offset = later.first, later.first.base_offset
        yield from self._join(later.first)
        self.next_offset = max(self.next_offset, later.next_offset)
        self.gaps += later.gaps
        self.duplicates += later.duplicates
        self.lost_offsets += later.lost_offsets
        self.compacted_offsets += later.compacted_offsets
        self.holes = (self.holes + later.holes)[:DRAWN_HOLES]

    def _join(self, batch: AuditedBatch) -> Iterator[AuditFinding]:
        """Compare with the due offset. A wrapper of formats 0 and 1 states only its last offset."""
        due, is_wrapper = self.next_offset, batch.record_count < 0
        if batch.last_offset < due or (batch.base_offset < due and not is_wrapper):
            self.duplicates += 1
            text = f"offsets {batch.base_offset} to {batch.last_offset} again; due is {due}"
            yield batch.finding(Kind.DUPLICATE, Level.ERROR, self.where, text)
        elif batch.base_offset > due and not is_wrapper:
            yield from self._hole(batch, due, batch.base_offset)

    def _hole(self, batch: AuditedBatch, first: int, end: int) -> Iterator[AuditFinding]:
        is_loss = first >= self.compacted_until
        if len(self.holes) < DRAWN_HOLES:
            self.holes.append(Hole(first, end, is_loss))
        if not is_loss:
            self.compacted_offsets += end - first
            return
        self.gaps += 1
        self.lost_offsets += end - first
        yield batch.finding(Kind.GAP, Level.ERROR, self.where, f"no offsets from {first} to {end - 1}")

    def _inside(self, batch: AuditedBatch) -> Iterator[AuditFinding]:
        missing = batch.last_offset - batch.base_offset + 1 - batch.record_count
        if missing <= 0:
            return
        if batch.base_offset < self.compacted_until:
            self.compacted_offsets += missing
            return
        self.gaps += 1
        self.lost_offsets += missing
        text = f"{batch.record_count} records with offsets {batch.base_offset} to {batch.last_offset}"
        yield batch.finding(Kind.GAP, Level.ERROR, self.where, text)


NONE_YET = -1
"""The last sequence number in an epoch without records: 0 is due next."""

UNKNOWN = -2
"""The last sequence number if the first batch of a producer is a marker: any number may follow."""


class Producer(NamedTuple):
    """The state of a producer id after its last batch.

    Attributes:
        epoch: the highest so far.
        last_sequence: of its last record, or `NONE_YET`, or `UNKNOWN`.
        next_offset: after its last batch.
    """

    epoch: int
    last_sequence: int
    next_offset: int


@attrs.define
class Sequences:
    """The idempotent producers of a stretch of a log.

    Attributes:
        where: the partition.
        compacted_until: compaction may have removed batches below this offset.
        begins: by producer id, its first batch with records, and the markers before it that raise the epoch:
            they are checked against the stretch before this one.
        last: by producer id, its state after its last batch.
        breaks: how often a sequence number or an epoch was not the one due.
    """

    where: TopicPartition
    compacted_until: int = 0
    begins: dict[int, list[AuditedBatch]] = attrs.field(factory=dict)
    last: dict[int, Producer] = attrs.field(factory=dict)
    breaks: int = 0

    def add(self, batch: AuditedBatch) -> Iterator[AuditFinding]:
        """Add the next batch in the order of the log."""
        if batch.producer_id < 0:
            return
        begin = self.begins.setdefault(batch.producer_id, [])
        if not begin or (begin[-1].is_control and (not batch.is_control or _raises(begin[-1], batch))):
            begin.append(batch)
        yield from self._step(batch)

    def then(self, later: Sequences) -> Iterator[AuditFinding]:
        """Join the stretch that follows."""
        for producer_id, begin in later.begins.items():
            for batch in begin:
                yield from self._step(batch)
            own = self.begins.setdefault(producer_id, [])
            if not own or own[-1].is_control:
                own.extend(begin)
            if not begin[-1].is_control:  # otherwise the markers were all that there is
                self.last[producer_id] = max(self.last[producer_id], later.last[producer_id], key=_by_epoch)
        self.breaks += later.breaks

    def _step(self, batch: AuditedBatch) -> Iterator[AuditFinding]:
        before = self.last.get(batch.producer_id)
        if before is not None:
            yield from self._check(before, batch)
        self.last[batch.producer_id] = _after(before, batch)

    def _check(self, before: Producer, batch: AuditedBatch) -> Iterator[AuditFinding]:
        text = self._problem(before, batch)
        if text is not None:
            self.breaks += 1
            text = f"producer {batch.producer_id}: {text}"
            yield batch.finding(Kind.SEQUENCE, Level.ERROR, self.where, text)

    def _problem(self, before: Producer, batch: AuditedBatch) -> str | None:
        if batch.producer_epoch < before.epoch:
            return f"its epoch goes back from {before.epoch} to {batch.producer_epoch}"
        due = _due(before, batch)
        if due is None or batch.base_sequence < 0 or batch.base_sequence == due:
            return None
        ahead = (batch.base_sequence - due) & MAX_SEQUENCE
        if ahead > MAX_SEQUENCE // 2:  # numbers wrap around, so far ahead means behind
            return f"sequences {batch.base_sequence} to {batch.last_sequence} again; due is {due}"
        if before.next_offset < self.compacted_until and batch.base_offset - before.next_offset >= ahead:
            return None
        return f"no sequences from {due} to {(batch.base_sequence - 1) & MAX_SEQUENCE}"


def _due(before: Producer, batch: AuditedBatch) -> int | None:
    """Return the sequence number that is due, None for any; each epoch begins with 0."""
    if batch.producer_epoch > before.epoch:
        return 0
    return None if before.last_sequence == UNKNOWN else (before.last_sequence + 1) & MAX_SEQUENCE


def _raises(marker: AuditedBatch, later: AuditedBatch) -> bool:
    return later.producer_epoch > marker.producer_epoch


def _by_epoch(producer: Producer) -> tuple[int, int]:
    return producer.epoch, producer.next_offset


def _after(before: Producer | None, batch: AuditedBatch) -> Producer:
    """Return the state after a batch. A marker at most raises the epoch; a batch of an older epoch changes
    nothing."""
    next_offset = batch.last_offset + 1
    if batch.base_sequence >= 0 and (before is None or batch.producer_epoch >= before.epoch):
        return Producer(batch.producer_epoch, batch.last_sequence, next_offset)
    if before is None:
        return Producer(batch.producer_epoch, UNKNOWN, next_offset)
    if batch.producer_epoch > before.epoch:
        return Producer(batch.producer_epoch, NONE_YET, next_offset)
    return before._replace(next_offset=max(before.next_offset, next_offset))


@attrs.define
class Transactions:
    """The transactions of a stretch of a log.

    Attributes:
        where: the partition.
        markers: number of control batches.
        committed: number of markers that commit.
        aborted: number of markers that abort.
        open: by producer id, the first batch of its open transaction.
        outside: by producer id, a non-transactional batch before any transactional one: no transaction of an
            earlier stretch may be open there.
        ended: producer ids with a marker here, which ends a transaction of an earlier stretch.
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
        """Add the next batch in the order of the log."""
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
        """Join the stretch that follows."""
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
        """Yield a note for each transaction that is open at the end of the log."""
        for producer_id, begun in sorted(self.open.items()):
            text = f"producer {producer_id}: its transaction is open"
            yield begun.finding(Kind.TRANSACTION, Level.NOTE, self.where, text)
