"""Whether each idempotent producer's sequence numbers count up, and its epoch never goes back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import attrs

from splashdam.model.values import TopicPartition
from splashdam.pipeline.audit.batch import MAX_SEQUENCE, AuditedBatch
from splashdam.pipeline.audit.findings import AuditFinding, Kind
from splashdam.storage.inspect.verify import Level

NONE_YET = -1
"""The last sequence number of an epoch in which nothing was sent: 0 is due."""

UNKNOWN = -2
"""The last sequence number where the log's first word of a producer is a marker: any may follow."""


class Producer(NamedTuple):
    """What the last batch of a producer id left behind.

    Attributes:
        epoch: the highest so far.
        last_sequence: of its last record, or `NONE_YET`, or `UNKNOWN`.
        next_offset: behind its last batch.
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
        begins: of each producer id, its first batch with records, and the markers before it that raise the
            epoch: what a stretch before this one is held against.
        last: of each producer id, what its last batch left.
        breaks: how often a sequence or an epoch was not the one due.
    """

    where: TopicPartition
    compacted_until: int = 0
    begins: dict[int, list[AuditedBatch]] = attrs.field(factory=dict)
    last: dict[int, Producer] = attrs.field(factory=dict)
    breaks: int = 0

    def add(self, batch: AuditedBatch) -> Iterator[AuditFinding]:
        """Takes in the next batch in the order of the log."""
        if batch.producer_id < 0:
            return
        begin = self.begins.setdefault(batch.producer_id, [])
        if not begin or (begin[-1].is_control and (not batch.is_control or _raises(begin[-1], batch))):
            begin.append(batch)
        yield from self._step(batch)

    def then(self, later: Sequences) -> Iterator[AuditFinding]:
        """Takes in the stretch that follows."""
        for producer_id, begin in later.begins.items():
            for batch in begin:
                yield from self._step(batch)
            own = self.begins.setdefault(producer_id, [])
            if not own or own[-1].is_control:
                own.extend(begin)
            if not begin[-1].is_control:  # else its markers have told all
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
        if ahead > MAX_SEQUENCE // 2:  # numbers wrap around: far ahead is behind
            return f"sequences {batch.base_sequence} to {batch.last_sequence} again; due is {due}"
        if before.next_offset < self.compacted_until and batch.base_offset - before.next_offset >= ahead:
            return None
        return f"no sequences from {due} to {(batch.base_sequence - 1) & MAX_SEQUENCE}"


def _due(before: Producer, batch: AuditedBatch) -> int | None:
    """The sequence number that must follow, None for any; each epoch begins with 0."""
    if batch.producer_epoch > before.epoch:
        return 0
    return None if before.last_sequence == UNKNOWN else (before.last_sequence + 1) & MAX_SEQUENCE


def _raises(marker: AuditedBatch, later: AuditedBatch) -> bool:
    return later.producer_epoch > marker.producer_epoch


def _by_epoch(producer: Producer) -> tuple[int, int]:
    return producer.epoch, producer.next_offset


def _after(before: Producer | None, batch: AuditedBatch) -> Producer:
    """A marker raises the epoch at most; a batch of an epoch that is over changes nothing."""
    next_offset = batch.last_offset + 1
    if batch.base_sequence >= 0 and (before is None or batch.producer_epoch >= before.epoch):
        return Producer(batch.producer_epoch, batch.last_sequence, next_offset)
    if before is None:
        return Producer(batch.producer_epoch, UNKNOWN, next_offset)
    if batch.producer_epoch > before.epoch:
        return Producer(batch.producer_epoch, NONE_YET, next_offset)
    return before._replace(next_offset=max(before.next_offset, next_offset))
