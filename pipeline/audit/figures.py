"""Totals and histograms for the report: sizes of batches, codecs, and bytes over time."""

from __future__ import annotations

from collections import Counter

import attrs

from splashdam.pipeline.audit.findings import AuditedBatch

FINEST_MS = 60_000
"""Initial width of a bar over time; it is doubled whenever there are too many bars."""

MOST_BARS = 240


@attrs.define
class BytesOverTime:
    """Bytes by timestamp of the batch, in bars of equal width.

    Attributes:
        width_ms: of a bar; `FINEST_MS` times a power of two.
        bars: bytes by the number of the bar, which is its start divided by the width.
        untimed_bytes: of batches without a timestamp.
    """

    width_ms: int = FINEST_MS
    bars: Counter[int] = attrs.field(factory=Counter)
    untimed_bytes: int = 0

    def add(self, timestamp_ms: int, size_bytes: int) -> None:
        """Count the bytes of a batch with a timestamp."""
        if timestamp_ms < 0:
            self.untimed_bytes += size_bytes
            return
        self.bars[timestamp_ms // self.width_ms] += size_bytes
        self._fit()

    def merge(self, other: BytesOverTime) -> None:
        """Add the counts of another one."""
        while self.width_ms < other.width_ms:
            self._coarsen()
        for number, size_bytes in other.bars.items():
            self.bars[number * other.width_ms // self.width_ms] += size_bytes
        self.untimed_bytes += other.untimed_bytes
        self._fit()

    def _fit(self) -> None:
        while len(self.bars) > MOST_BARS:
            self._coarsen()

    def _coarsen(self) -> None:
        self.width_ms *= 2
        coarse: Counter[int] = Counter()
        for number, size_bytes in self.bars.items():
            coarse[number // 2] += size_bytes
        self.bars = coarse


@attrs.define
class SegmentFigures:
    """Totals of one segment file.

    Attributes:
        first_offset: of its first batch.
        next_offset: after its last batch.
        size_bytes: of its batches.
        batches: in it.
    """

    first_offset: int
    next_offset: int
    size_bytes: int = 0
    batches: int = 0


@attrs.define
class Figures:
    """Totals of a stretch of a log.

    Attributes:
        batches: number of batches, including markers.
        records: without markers; a compressed wrapper of formats 0 and 1 counts as one.
        size_bytes: of the batches.
        codecs: bytes by codec.
        sizes: batches by size, in powers of two: 14 stands for 8,193 to 16,384 bytes.
        fills: batches by their number of records, in powers of two.
        over_time: bytes by timestamp.
        segments: by path.
    """

    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    codecs: Counter[str] = attrs.field(factory=Counter)
    sizes: Counter[int] = attrs.field(factory=Counter)
    fills: Counter[int] = attrs.field(factory=Counter)
    over_time: BytesOverTime = attrs.field(factory=BytesOverTime)
    segments: dict[str, SegmentFigures] = attrs.field(factory=dict)

    def add(self, batch: AuditedBatch) -> None:
        """Count a batch."""
        self.batches += 1
        self.size_bytes += batch.size_bytes
        self.sizes[power_of_two(batch.size_bytes)] += 1
        self.over_time.add(batch.max_timestamp_ms, batch.size_bytes)
        if not batch.is_control:
            records = abs(batch.record_count)
            self.records += records
            self.codecs[batch.codec] += batch.size_bytes
            self.fills[power_of_two(records)] += 1
        segment = self.segments.get(batch.path)
        if segment is None:
            segment = self.segments[batch.path] = SegmentFigures(batch.base_offset, batch.base_offset)
        segment.next_offset = max(segment.next_offset, batch.last_offset + 1)
        segment.size_bytes += batch.size_bytes
        segment.batches += 1

    def merge(self, other: Figures) -> None:
        """Add the counts of another stretch."""
        self.batches += other.batches
        self.records += other.records
        self.size_bytes += other.size_bytes
        self.codecs.update(other.codecs)
        self.sizes.update(other.sizes)
        self.fills.update(other.fills)
        self.over_time.merge(other.over_time)
        for path, segment in other.segments.items():
            own = self.segments.setdefault(path, SegmentFigures(segment.first_offset, segment.next_offset))
            own.first_offset = min(own.first_offset, segment.first_offset)
            own.next_offset = max(own.next_offset, segment.next_offset)
            own.size_bytes += segment.size_bytes
            own.batches += segment.batches


def power_of_two(number: int) -> int:
    """Return the exponent of the least power of two that is not below a number; 0 for 0."""
    return max(0, number - 1).bit_length()
