"""The pictures of the report: where offsets are, when bytes came, how large batches are, what packed them.

Small pictures as SVG text: bars, histograms, and a map of what is there. Colours are those of the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import NamedTuple, TypeVar

from splashdam.pipeline.audit.figures import BytesOverTime
from splashdam.pipeline.audit.findings import AuditFinding, Kind
from splashdam.pipeline.audit.report import AuditReport
from splashdam.pipeline.audit.stretch import Stretch

WIDTH = 720
_AXIS = 16


class Bar(NamedTuple):
    """One bar of a chart.

    Attributes:
        value: its length.
        title: what is shown where the pointer rests on it.
    """

    value: float
    title: str


class Span(NamedTuple):
    """A part of a row of a map.

    Attributes:
        start: where it begins, in units of the row.
        end: where it ends.
        css_class: what it is: the page gives it a colour.
        title: what is shown where the pointer rests on it.
    """

    start: float
    end: float
    css_class: str
    title: str


def columns(bars: Sequence[Bar], left: str, right: str, *, height: int = 120, css_class: str = "bar") -> str:
    """Bars side by side, over a line with a label at each end.

    Args:
        bars: from left to right.
        left: what the first bar is.
        right: what the last bar is.
        height: of the bars.
        css_class: of the bars.
    """
    top = max((bar.value for bar in bars), default=0) or 1
    step = WIDTH / max(len(bars), 1)
    drawn = []
    for number, bar in enumerate(bars):
        tall = max(bar.value / top * height, 1.5 if bar.value else 0)
        place = (number * step + step * 0.08, height - tall, step * 0.84, tall)
        drawn.append(_rect(place, css_class, bar.title))
    axis = f'<line class="axis" x1="0" x2="{WIDTH}" y1="{height}" y2="{height}"/>'
    labels = _text(0, height + _AXIS, left) + _text(WIDTH, height + _AXIS, right, anchor="end")
    return _picture(height + _AXIS + 6, [*drawn, axis, labels])


def labelled_bars(rows: Sequence[tuple[str, float, str]], *, css_class: str = "bar") -> str:
    """Bars below each other, each with its name before it and a text behind it.

    Args:
        rows: name, length and text of each.
        css_class: of the bars.
    """
    top = max((value for _, value, _ in rows), default=0) or 1
    name_width, text_width, tall = 150, 170, 22
    drawn = []
    for number, (name, value, text) in enumerate(rows):
        y = number * tall
        long = max(value / top * (WIDTH - name_width - text_width), 1.5 if value else 0)
        drawn.append(_text(name_width - 8, y + 15, name, anchor="end"))
        drawn.append(_rect((name_width, y + 4, long, tall - 8), css_class, f"{name}: {text}"))
        drawn.append(_text(name_width + long + 6, y + 15, text))
    return _picture(len(rows) * tall + 4, drawn)


def coverage(rows: Sequence[tuple[str, float, Sequence[Span]]]) -> str:
    """A map with a row for each name, as wide as its length; spans of no width are still to be seen.

    Args:
        rows: name, length in units, and what stands in it; later spans are drawn over earlier ones.
    """
    name_width, tall = 190, 22
    drawn = []
    for number, (name, length, spans) in enumerate(rows):
        y, scale = number * tall, (WIDTH - name_width) / (length or 1)
        drawn.append(_text(name_width - 8, y + 15, name, anchor="end"))
        for span in spans:
            wide = max((span.end - span.start) * scale, 2.0)
            x = min(name_width + span.start * scale, WIDTH - wide)
            drawn.append(_rect((x, y + 3, wide, tall - 6), span.css_class, span.title))
    return _picture(len(rows) * tall + 4, drawn)


def _picture(height: float, parts: Iterable[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" xmlns="http://www.w3.org/2000/svg">'
        f"{''.join(parts)}</svg>"
    )


def _rect(place: tuple[float, float, float, float], css_class: str, title: str) -> str:
    x, y, width, height = place
    return (
        f'<rect class="{css_class}" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}">'
        f"<title>{escape(title)}</title></rect>"
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}">{escape(text)}</text>'


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
