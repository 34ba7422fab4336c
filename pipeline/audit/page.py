"""The report as one HTML page with its pictures in it: a file that can be mailed or kept."""

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
from splashdam.pipeline.audit.style import STYLE

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
