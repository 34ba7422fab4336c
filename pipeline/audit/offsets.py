"""Whether the offsets of a partition are all there, and none twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import attrs

from splashdam.model.values import TopicPartition
from splashdam.pipeline.audit.batch import AuditedBatch
from splashdam.pipeline.audit.findings import AuditFinding, Kind
from splashdam.storage.inspect.verify import Level

DRAWN_HOLES = 1000
"""So many holes are remembered one by one for the picture; all are counted."""


class Hole(NamedTuple):
    """Offsets that are not there.

    Attributes:
        first: the first of them.
        end: the one behind the last.
        is_loss: False where compaction explains it.
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
        first: the first batch, None before one was seen.
        next_offset: behind the last batch so far.
        gaps: holes that nothing explains.
        duplicates: batches that begin below the end of one before them.
        lost_offsets: how many offsets are in the gaps.
        compacted_offsets: how many offsets compaction has left empty.
        holes: the first of the holes between batches.
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
        """Takes in the next batch in the order of the log."""
        if self.first is None:
            self.first, self.next_offset = batch, batch.base_offset
        yield from self._join(batch)
        if batch.record_count >= 0:
            yield from self._inside(batch)
        self.next_offset = max(self.next_offset, batch.last_offset + 1)

    def then(self, later: Offsets) -> Iterator[AuditFinding]:
        """Takes in the stretch that follows."""
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
        """Of a wrapper of formats 0 and 1, the last offset alone is known without unpacking it."""
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
