"""From offset ranges to the pieces that tasks read, and from backlogs to what one trigger takes. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import attrs

from splashdam.model.values import TopicPartition
from splashdam.pipeline.local_source.positions import Offsets
from splashdam.wire.fields import NO_UUID

WORTH_A_TASK = 250_000
"""Records; below that starting a task costs more than a second core gains."""

PIECES_PER_CORE = 2
"""So that a core which is done early takes over from the others."""


@attrs.frozen(order=True)
class OffsetRange:
    """Offsets of one partition.

    Attributes:
        where: the partition.
        first: the first offset.
        end: the offset behind the last.
        topic_id: of the topic they were planned for; zeros where nobody has asked.
    """

    where: TopicPartition
    first: int
    end: int
    topic_id: bytes = NO_UUID

    @property
    def size(self) -> int:
        """How many offsets; records may be fewer, where a log is compacted or has transactions."""
        return self.end - self.first


@attrs.frozen
class Splitting:
    """How ranges become tasks.

    Attributes:
        min_partitions: so many tasks about, as far as there are records; None for no wish.
        max_records: no task has more; None for no bound.
        cores: where there is neither, large ranges are split so that this many cores have work; None to keep
            one task per partition.
    """

    min_partitions: int | None = None
    max_records: int | None = None
    cores: int | None = None

    def split(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """The pieces, in order and without empty ones; together they are the ranges.

        The bound of records is applied first, then the wish for more tasks, as Spark's connector does.
        """
        filled = [each for each in ranges if each.size > 0]
        if self.min_partitions is None and self.max_records is None:
            return filled if self.cores is None else _split_for_cores(filled, self.cores)
        if self.max_records is not None:
            most = self.max_records
            filled = [piece for each in filled for piece in _divide(each, -(-each.size // most))]
        if self.min_partitions is not None and len(filled) < self.min_partitions:
            filled = _split_to(filled, self.min_partitions)
        return filled


def _split_for_cores(ranges: Sequence[OffsetRange], cores: int) -> list[OffsetRange]:
    """Pieces of about the same size, none of them too small to be worth a task of its own."""
    total = sum(each.size for each in ranges)
    size = max(WORTH_A_TASK, -(-total // (cores * PIECES_PER_CORE)))
    return [piece for each in ranges for piece in _divide(each, max(1, round(each.size / size)))]


def _split_to(ranges: Sequence[OffsetRange], wanted: int) -> list[OffsetRange]:
    """Shares the wanted pieces out by size, once those that stay whole have had theirs."""
    total = sum(each.size for each in ranges)
    whole = {each for each in ranges if _share(each.size, total, wanted) == 1}
    large = total - sum(each.size for each in whole)
    left = max(wanted - len(whole), 1)
    return [
        piece
        for each in ranges
        for piece in _divide(each, 1 if each in whole else _share(each.size, large, left))
    ]


def _share(size: int, total: int, wanted: int) -> int:
    return max(math.floor(size / total * wanted + 0.5), 1)  # halves go up, as in Java


def _divide(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Pieces that differ by one offset at most; the larger ones last."""
    pieces, first = [], whole.first
    for left in range(min(parts, whole.size), 0, -1):  # who wishes for a billion pieces gets one per offset
        end = first + (whole.end - first) // left
        pieces.append(OffsetRange(whole.where, first, end))
        first = end
    return pieces


def rate_limited(limit: int, start: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    """Where a trigger ends that takes about ``limit`` records: each partition's share is that of its backlog.

    Shares are rounded as by Spark's connector: down, but never to nothing, so that a small partition does not
    starve. A trigger may thus take a few records more than the limit.

    Args:
        limit: most records, about.
        start: from where; a partition that is missing is taken whole.
        latest: the ends.
    """
    backlogs = {each: end - start[each] for each, end in latest.items() if start.get(each, end) < end}
    total = float(sum(backlogs.values()))
    ends = dict(latest)
    for each, backlog in backlogs.items():
        share = limit * (backlog / total)
        taken = math.ceil(share) if share < 1 else math.floor(share)
        ends[each] = min(latest[each], start[each] + taken)
    return ends


def backlog_of(start: Offsets, latest: Offsets) -> int:
    """How many offsets are new; those that went backwards do not count."""
    return sum(max(0, end - start.get(each, end)) for each, end in latest.items())
