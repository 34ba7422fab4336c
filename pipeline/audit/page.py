"""The report as one HTML page with its pictures in it: a file that can be mailed or kept.

The look of the report page, in light and in dark; nothing of it comes from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from splashdam.pipeline.audit.findings import AuditFinding
from splashdam.pipeline.audit.pictures import (
    DRAWN_PARTITIONS,
    batch_fills,
    batch_sizes,
    bytes_over_time,
    codecs,
    map_of_offsets,
    size,
)
from splashdam.pipeline.audit.report import AuditReport
from splashdam.pipeline.audit.stretch import Stretch

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
    """The whole page."""
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
    skipped = "".join(f"<p>Not looked at: {escape(text)}.</p>" for text in report.skipped)
    return f"<footer>{skipped}<p>splashdam pipeline audit, {report.seconds:.1f} s</p></footer>"
