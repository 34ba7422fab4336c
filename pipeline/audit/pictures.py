"""The pictures of the report: where offsets are, when bytes came, how large batches are, what packed them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from splashdam.pipeline.audit.figures import BytesOverTime
from splashdam.pipeline.audit.findings import AuditFinding, Kind
from splashdam.pipeline.audit.report import AuditReport
from splashdam.pipeline.audit.stretch import Stretch
from splashdam.pipeline.audit.svg import Bar, Span, columns, coverage, labelled_bars

T = TypeVar("T")

DRAWN_PARTITIONS = 200
"""A map with more rows is no picture any more; the table below it has them all."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_DAMAGED = (Kind.CHECKSUM, Kind.DUPLICATE)


def map_of_offsets(report: AuditReport) -> str:
    """A row for each partition: its segments, and over them what is missing or damaged."""
    drawn = [partition for partition in report.partitions if partition.offsets.first is not None]
    return coverage([_row(partition, report.findings) for partition in drawn[:DRAWN_PARTITIONS]])


def _row(partition: Stretch, findings: Sequence[AuditFinding]) -> tuple[str, float, list[Span]]:
    offsets = partition.offsets
    start = offsets.first.base_offset if offsets.first is not None else 0
    spans = [*_segments(partition, start)]
    for hole in offsets.holes:
        text = f"offsets {hole.first:,} to {hole.end - 1:,}: {'missing' if hole.is_loss else 'compacted'}"
        spans.append(Span(hole.first - start, hole.end - start, "loss" if hole.is_loss else "hole", text))
    for finding in findings:
        if finding.where == partition.where and finding.kind in _DAMAGED and finding.offset is not None:
            at = finding.offset - start
            spans.append(Span(at, at, "loss", f"offset {finding.offset:,}: {finding.text}"))
    return _short(str(partition.where)), offsets.next_offset - start, spans


def _segments(partition: Stretch, start: int) -> Iterator[Span]:
    for number, (path, segment) in enumerate(sorted(partition.figures.segments.items())):
        name = path.rpartition("/")[2]
        text = (
            f"{name}: offsets {segment.first_offset:,} to {segment.next_offset - 1:,}, "
            f"{segment.batches:,} batches, {size(segment.size_bytes)}"
        )
        shade = "other" if number % 2 else "bar"
        yield Span(segment.first_offset - start, segment.next_offset - start, shade, text)


def _short(name: str) -> str:
    return name if len(name) <= 27 else f"{name[:12]}…{name[-14:]}"


def bytes_over_time(report: AuditReport) -> str:
    """Bytes of all partitions by the time of their batches; empty where no batch has one."""
    together = BytesOverTime()
    for partition in report.partitions:
        together.merge(partition.figures.over_time)
    if not together.bars:
        return ""
    first, last, width = min(together.bars), max(together.bars), together.width_ms
    while last - first > 400:  # long silence between few bars
        bars = Counter[int]()
        for number, count in together.bars.items():
            bars[number // 2] += count
        together.bars, width = bars, width * 2
        first, last = min(bars), max(bars)
    shown = [
        Bar(together.bars[number], f"{moment(number * width)}: {size(together.bars[number])}")
        for number in range(first, last + 1)
    ]
    return columns(shown, moment(first * width), moment((last + 1) * width))


def batch_sizes(report: AuditReport) -> str:
    """How many batches there are of which size."""
    sizes = _sum(partition.figures.sizes for partition in report.partitions)
    return _powers(sizes, lambda power: f"up to {size(1 << power)}")


def batch_fills(report: AuditReport) -> str:
    """How many batches hold how many records."""
    fills = _sum(partition.figures.fills for partition in report.partitions)
    return _powers(fills, lambda power: f"up to {1 << power:,} record{'s' * (power > 0)}")


def codecs(report: AuditReport) -> str:
    """Bytes by codec."""
    found = _sum(partition.figures.codecs for partition in report.partitions)
    total = found.total() or 1
    return labelled_bars(
        [(codec, count, f"{size(count)}, {count / total:.0%}") for codec, count in found.most_common()]
    )


def _powers(counts: Counter[int], name: Callable[[int], str]) -> str:
    if not counts:
        return ""
    powers = range(min(counts), max(counts) + 1)
    return labelled_bars([(name(power), counts[power], f"{counts[power]:,}") for power in powers])


def _sum(counters: Iterable[Counter[T]]) -> Counter[T]:
    together: Counter[T] = Counter()
    for counter in counters:
        together.update(counter)
    return together


def size(count: float) -> str:
    """Bytes as people read them."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:,.0f} {_UNITS[unit]}" if unit == 0 or count >= 100 else f"{count:,.1f} {_UNITS[unit]}"


def moment(timestamp_ms: int) -> str:
    """A time in UTC; any number can stand in a batch."""
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp_ms)).strftime("%Y-%m-%d %H:%M")
    except OverflowError:
        return f"{timestamp_ms} ms"
