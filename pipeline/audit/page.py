"""The audit report as one HTML page with its pictures in it: a file that can be mailed or kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import NamedTuple, TypeVar

from splashdam.pipeline import svg
from splashdam.pipeline.audit.checks import Stretch
from splashdam.pipeline.audit.figures import BytesOverTime
from splashdam.pipeline.audit.findings import AuditFinding, Kind
from splashdam.pipeline.audit.report import AuditReport

STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --dim: #5d6779; --paper: #ffffff; --card: #f4f6f9;
  --line: #d5dbe4; --bar: #2f6db5; --other: #6aa0dc; --hole: #e0b64a; --loss: #c62f2f; --good: #1f7a45; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf1; --dim: #9aa6b8; --paper: #12161d;
  --card: #1b212b; --line: #323b49; --bar: #5b9be0; --other: #35608f; --hole: #d9ad45; --loss: #f0605f;
  --good: #5cc98a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 960px; padding: 24px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 32px 0 8px; }
p { margin: 4px 0; }
.dim { color: var(--dim); }
.verdict { font-size: 18px; font-weight: 600; margin: 8px 0 16px; }
.good { color: var(--good); }
.bad { color: var(--loss); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(120px, 1fr)); gap: 10px; }
.tile { background: var(--card); border-radius: 8px; padding: 10px 12px; }
.tile b { display: block; font-size: 19px; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
.axis { stroke: var(--line); stroke-width: 1; }
.bar { fill: var(--bar); }
.other { fill: var(--other); }
.hole { fill: var(--hole); }
.loss { fill: var(--loss); }
.key { display: inline-block; width: 12px; height: 12px; border-radius: 2px; margin: 0 5px 0 14px;
  vertical-align: -1px; }
.key.bar { background: var(--bar); margin-left: 0; }
.key.other { background: var(--other); margin-left: 3px; }
.key.hole { background: var(--hole); }
.key.loss { background: var(--loss); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th { text-align: left; color: var(--dim); font-weight: 600; }
th, td { padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.path { overflow-wrap: anywhere; min-width: 220px; }
footer { margin-top: 32px; color: var(--dim); font-size: 13px; }
"""


SHOWN_FINDINGS = 500

_KEY = (
    '<p class="dim"><span class="key bar"></span><span class="key other"></span>segments, in turn'
    '<span class="key hole"></span>compacted<span class="key loss"></span>missing, doubled or damaged</p>'
)
_PARTITION_HEAD = (
    ("partition", False),
    ("offsets from", True),
    ("to", True),
    ("records", True),
    ("batches", True),
    ("segments", True),
    ("bytes", True),
    ("committed", True),
    ("aborted", True),
    ("open", True),
    ("compacted", True),
    ("missing", True),
)


def page(report: AuditReport) -> str:
    """Return the whole page as HTML."""
    parts = [
        _head(report),
        _tiles(report),
        _findings(report.findings, report.errors),
        _section("Where the offsets are", _KEY + map_of_offsets(report) + _undrawn(report)),
        _section("Bytes over time, UTC", bytes_over_time(report)),
        _section("Batches by size", batch_sizes(report)),
        _section("Batches by records in them", batch_fills(report)),
        _section("Bytes by codec", codecs(report)),
        _section("Partitions", _partitions(report.partitions)),
        _footer(report),
    ]
    body = "\n".join(part for part in parts if part)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Audit of {escape(report.source)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"{body}\n</body>\n</html>\n"
    )


def _head(report: AuditReport) -> str:
    if report.is_sound:
        verdict = '<p class="verdict good">Sound: no errors</p>'
    else:
        verdict = f'<p class="verdict bad">{report.errors:,} error{"s" * (report.errors != 1)}</p>'
    return f"<h1>Audit of {escape(report.source)}</h1>\n{verdict}"


def _tiles(report: AuditReport) -> str:
    figures = (
        ("records", f"{report.records:,}"),
        ("gaps", f"{report.gaps:,}"),
        ("duplicates", f"{report.duplicates:,}"),
        ("batches", f"{report.batches:,}"),
        ("partitions", f"{len(report.partitions):,}"),
        ("bytes", size(report.size_bytes)),
    )
    tiles = "".join(f'<div class="tile">{name}<b>{value}</b></div>' for name, value in figures)
    return f'<div class="tiles">{tiles}</div>'


def _section(title: str, content: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{content}" if content else ""


def _findings(findings: Sequence[AuditFinding], errors: int) -> str:
    if not findings:
        return ""
    rows = "".join(_finding(finding) for finding in findings[:SHOWN_FINDINGS])
    more = max(0, len(findings) - SHOWN_FINDINGS) + max(0, errors - sum(each.is_error for each in findings))
    head = _heading((("", False), ("what", False), ("offset", True), ("where", False), ("finding", False)))
    left_out = f'<p class="dim">and {more:,} more</p>' if more else ""
    return _section("Findings", f'<div class="wide"><table>{head}{rows}</table></div>{left_out}')


def _finding(finding: AuditFinding) -> str:
    place = finding.path if finding.position is None else f"{finding.path}, byte {finding.position:,}"
    level = f'<td class="{"bad" if finding.is_error else "dim"}">{finding.level.value}</td>'
    offset = "" if finding.offset is None else f"{finding.offset:,}"
    return (
        f'<tr>{level}<td>{finding.kind.value}</td><td class="number">{offset}</td>'
        f'<td class="path">{escape(place)}</td><td>{escape(finding.text)}</td></tr>'
    )


def _undrawn(report: AuditReport) -> str:
    more = len(report.partitions) - DRAWN_PARTITIONS
    return f'<p class="dim">and {more:,} more partitions</p>' if more > 0 else ""


def _partitions(partitions: Sequence[Stretch]) -> str:
    rows = "".join(_partition(partition) for partition in partitions)
    return f'<div class="wide"><table>{_heading(_PARTITION_HEAD)}{rows}</table></div>'


def _partition(partition: Stretch) -> str:
    offsets, transactions, figures = partition.offsets, partition.transactions, partition.figures
    first = "" if offsets.first is None else f"{offsets.first.base_offset:,}"
    cells = (
        first,
        f"{offsets.next_offset - 1:,}" if first else "",
        f"{figures.records:,}",
        f"{figures.batches:,}",
        f"{len(figures.segments):,}",
        size(figures.size_bytes),
        f"{transactions.committed:,}",
        f"{transactions.aborted:,}",
        f"{len(transactions.open):,}",
        f"{offsets.compacted_offsets:,}",
        f"{offsets.lost_offsets:,}",
    )
    numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
    return f"<tr><td>{escape(str(partition.where))}</td>{numbers}</tr>"


def _heading(names: Iterable[tuple[str, bool]]) -> str:
    cells = (f'<th class="number">{name}</th>' if right else f"<th>{name}</th>" for name, right in names)
    return f"<tr>{''.join(cells)}</tr>"


def _footer(report: AuditReport) -> str:
    skipped = "".join(f"<p>Not checked: {escape(text)}.</p>" for text in report.skipped)
    return f"<footer>{skipped}<p>splashdam pipeline audit, {report.seconds:.1f} s</p></footer>"


WIDTH = 720
_AXIS = 16


class Bar(NamedTuple):
    """One bar of a chart.

    Attributes:
        value: its length.
        title: shown while the pointer rests on it.
    """

    value: float
    title: str


class Span(NamedTuple):
    """A part of a row of a map.

    Attributes:
        start: where it begins, in units of the row.
        end: where it ends.
        css_class: determines its colour.
        title: shown while the pointer rests on it.
    """

    start: float
    end: float
    css_class: str
    title: str


def columns(bars: Sequence[Bar], left: str, right: str, *, height: int = 120, css_class: str = "bar") -> str:
    """Draw bars side by side, over a line with a label at each end.

    Args:
        bars: from left to right.
        left: label of the first bar.
        right: label of the last bar.
        height: of the bars.
        css_class: of the bars.
    """
    top = max((bar.value for bar in bars), default=0) or 1
    step = WIDTH / max(len(bars), 1)
    drawn = []
    for number, bar in enumerate(bars):
        tall = max(bar.value / top * height, 1.5 if bar.value else 0)
        place = (number * step + step * 0.08, height - tall, step * 0.84, tall)
        drawn.append(svg.rectangle(*place, title=bar.title, css_class=css_class))
    drawn.append(svg.element("line", css_class="axis", x1=0, x2=WIDTH, y1=height, y2=height))
    drawn.append(svg.text(0, height + _AXIS, left))
    drawn.append(svg.text(WIDTH, height + _AXIS, right, anchor="end"))
    return svg.picture(WIDTH, height + _AXIS + 6, drawn)


def labelled_bars(rows: Sequence[tuple[str, float, str]], *, css_class: str = "bar") -> str:
    """Draw bars below each other, each with its name before it and a text after it.

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
        drawn.append(svg.text(name_width - 8, y + 15, name, anchor="end"))
        drawn.append(
            svg.rectangle(name_width, y + 4, long, tall - 8, title=f"{name}: {text}", css_class=css_class)
        )
        drawn.append(svg.text(name_width + long + 6, y + 15, text))
    return svg.picture(WIDTH, len(rows) * tall + 4, drawn)


def coverage(rows: Sequence[tuple[str, float, Sequence[Span]]]) -> str:
    """Draw a map with a row for each name; spans without width are drawn as thin lines.

    Args:
        rows: name, length in units, and spans; later spans are drawn over earlier ones.
    """
    name_width, tall = 190, 22
    drawn = []
    for number, (name, length, spans) in enumerate(rows):
        y, scale = number * tall, (WIDTH - name_width) / (length or 1)
        drawn.append(svg.text(name_width - 8, y + 15, name, anchor="end"))
        for span in spans:
            wide = max((span.end - span.start) * scale, 2.0)
            x = min(name_width + span.start * scale, WIDTH - wide)
            drawn.append(svg.rectangle(x, y + 3, wide, tall - 6, title=span.title, css_class=span.css_class))
    return svg.picture(WIDTH, len(rows) * tall + 4, drawn)


T = TypeVar("T")

DRAWN_PARTITIONS = 200
"""A map with more rows would not be readable; the table below has all partitions."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_DAMAGED = (Kind.CHECKSUM, Kind.DUPLICATE)


def map_of_offsets(report: AuditReport) -> str:
    """Draw a row for each partition: its segments, and over them missing and damaged offsets."""
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
    """Draw the bytes of all partitions by timestamp; empty if no batch has one."""
    together = BytesOverTime()
    for partition in report.partitions:
        together.merge(partition.figures.over_time)
    if not together.bars:
        return ""
    first, last, width = min(together.bars), max(together.bars), together.width_ms
    while last - first > 400:  # few bars with long gaps between them
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
    """Draw the number of batches by size."""
    sizes = _sum(partition.figures.sizes for partition in report.partitions)
    return _powers(sizes, lambda power: f"up to {size(1 << power)}")


def batch_fills(report: AuditReport) -> str:
    """Draw the number of batches by number of records."""
    fills = _sum(partition.figures.fills for partition in report.partitions)
    return _powers(fills, lambda power: f"up to {1 << power:,} record{'s' * (power > 0)}")


def codecs(report: AuditReport) -> str:
    """Draw the bytes by codec."""
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
    """Return a number of bytes for people."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:,.0f} {_UNITS[unit]}" if unit == 0 or count >= 100 else f"{count:,.1f} {_UNITS[unit]}"


def moment(timestamp_ms: int) -> str:
    """Return a time in UTC; a batch may have any number as its timestamp."""
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp_ms)).strftime("%Y-%m-%d %H:%M")
    except OverflowError:
        return f"{timestamp_ms} ms"
