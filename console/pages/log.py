"""Page 4: a partition's log: its segments to scale, what is in them, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from splashdam.console.routes import Page, Parts, Route, Visit
from splashdam.model.values import TopicPartition
from splashdam.model.views.log import BatchContents, Logs, LogView, SegmentContents, SegmentView
from splashdam.net.http import HttpAnswer

_PARTITIONS = 100
_LISTED = 50
_BESIDE_BYTES = 10
_ROW_BYTES = 16
_WIDTH = 1000.0
"""Segments and positions are drawn on a line of this length."""
_LEAST = 4.0
"""A segment is drawn at least as wide as this."""
_COLOURS = 6


@attrs.frozen
class Bar:
    """A segment as it is drawn.

    Attributes:
        segment: which one.
        x, width: on a line of 1,000.
        kind: what becomes of it, for its colour.
    """

    segment: SegmentView
    x: float
    width: float
    kind: str


@attrs.frozen
class Arrow:
    """An entry of an index as it is drawn, from its place in the index to that in the ``.log``.

    Attributes:
        name: of the entry, in words.
        from_x, to_x: on lines of 1,000.
    """

    name: str
    from_x: float
    to_x: float


@attrs.frozen
class HexRow:
    """Sixteen bytes.

    Attributes:
        at: of the first one, in the batch.
        pieces: bytes of one field each: their digits, the field's name and value, and its colour.
        text: the bytes as ASCII.
    """

    at: int
    pieces: tuple[tuple[str, str, int], ...]
    text: str


async def logs(visit: Visit) -> HttpAnswer:
    """Show which logs there are, the largest first."""
    looks = _looks(visit.parts)
    if looks is None:
        return await visit.missing("no log that this console may read")
    wanted = visit.query.get("q", "").strip()
    found = [each for each in looks.partitions() if wanted.lower() in each.topic.lower()]
    views = [view for each in found[:_PARTITIONS] if (view := looks.log(each)) is not None]
    return await visit.show(
        "logs.html",
        logs=views,
        found=len(found),
        wanted=wanted,
        fate=_fate,
    )


async def log(visit: Visit) -> HttpAnswer:
    """Show one log, a segment of it, and a batch of that."""
    looks, where = _looks(visit.parts), _where(visit)
    view = None if looks is None or where is None else looks.log(where)
    if looks is None or where is None or view is None:
        return await visit.missing("no such log")
    contents = batch = None
    base, offset = _number(visit, "segment"), _number(visit, "batch")
    if offset is not None:
        batch = await looks.batch(where, offset)
        holder = [each for each in view.segments if each.base_offset <= offset < each.end_offset]
        base = holder[0].base_offset if holder else base
    if base is not None:
        contents = await looks.segment(where, base, _number(visit, "from") or offset or base)
        if contents is not None and batch is not None:
            contents = _shortened(contents)
    forecast = await looks.forecast(where) if "forecast" in visit.query else None
    bars = _bars(view)
    return await visit.show(
        "log.html",
        log=view,
        bars=bars,
        listed=bars if len(bars) <= _LISTED else [*bars[: _LISTED - 10], *bars[-10:]],
        contents=contents,
        arrows=_arrows(contents) if contents else (),
        ticks=_ticks(contents) if contents else (),
        batch=batch,
        rows=tuple(_rows(batch)) if batch else (),
        fields=_numbered(batch),
        forecast=forecast,
        fate=_fate,
    )


def _shortened(contents: SegmentContents) -> SegmentContents:
    """Return fewer batches: the bytes of one are shown below them."""
    if len(contents.batches) <= _BESIDE_BYTES:
        return contents
    behind = contents.batches[_BESIDE_BYTES].base_offset
    return attrs.evolve(contents, batches=contents.batches[:_BESIDE_BYTES], next_offset=behind)


def _looks(parts: Parts) -> Logs | None:
    inside = parts.inspector.inside
    return None if inside is None else inside.logs


def _where(visit: Visit) -> TopicPartition | None:
    number = visit.arguments["partition"]
    return TopicPartition(visit.arguments["topic"], int(number)) if _is_number(number) else None


def _number(visit: Visit, name: str) -> int | None:
    text = visit.query.get(name, "").strip()
    return int(text) if _is_number(text) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


def _fate(view: LogView) -> str:
    """Return in a few words what becomes of a log next."""
    parts = []
    if view.retention.removes_segments:
        count = view.retention.removes_segments
        parts.append(f"retention removes {count} segment{'s' * (count > 1)}")
    cleaning = view.cleaning
    if cleaning is not None and cleaning.is_running:
        parts.append("is being cleaned")
    elif cleaning is not None and cleaning.is_due:
        parts.append("is cleaned next, unless another log is dirtier")
    return ", ".join(parts) or "stays as it is"


def _bars(view: LogView) -> list[Bar]:
    total = sum(each.size_bytes for each in view.segments) or 1
    room = _WIDTH - _LEAST * len(view.segments)
    bars, x = [], 0.0
    for segment in view.segments:
        width = _LEAST + max(0.0, room) * segment.size_bytes / total
        kind = "going" if segment.removal else segment.cleaning.replace(" ", "-") or "stays"
        bars.append(Bar(segment, x, width, "active" if segment.is_active and not segment.removal else kind))
        x += width
    return bars


def _arrows(contents: SegmentContents) -> list[Arrow]:
    size, count = contents.segment.size_bytes or 1, len(contents.index) or 1
    return [
        Arrow(
            f"offset {offset} is at byte {position}",
            _WIDTH * (number + 0.5) / count,
            _WIDTH * position / size,
        )
        for number, (offset, position) in enumerate(contents.index)
    ]


def _ticks(contents: SegmentContents) -> list[tuple[float, float, int]]:
    """Return the batches that are listed: where they begin, how wide they are, and their offset."""
    size = contents.segment.size_bytes or 1
    return [
        (_WIDTH * each.position / size, max(1.0, _WIDTH * each.size_bytes / size), each.base_offset)
        for each in contents.batches
    ]


def _numbered(batch: BatchContents | None) -> list[tuple[str, str, int]]:
    if batch is None:
        return []
    return [(each.name, each.value, number % _COLOURS) for number, each in enumerate(batch.fields)]


def _rows(batch: BatchContents) -> Iterator[HexRow]:
    names = [""] * len(batch.data)
    colours = [0] * len(batch.data)
    for number, field in enumerate(batch.fields):
        for at in range(field.start, min(field.start + field.size_bytes, len(names))):
            names[at], colours[at] = f"{field.name}: {field.value}", number % _COLOURS
    for at in range(0, len(batch.data), _ROW_BYTES):
        row = batch.data[at : at + _ROW_BYTES]
        text = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        yield HexRow(
            at, tuple(_pieces(row, names[at : at + _ROW_BYTES], colours[at : at + _ROW_BYTES])), text
        )


def _pieces(row: bytes, names: Sequence[str], colours: Sequence[int]) -> Iterator[tuple[str, str, int]]:
    start = 0
    for at in range(1, len(row) + 1):
        if at == len(row) or names[at] != names[start]:
            yield row[start:at].hex(" "), names[start], colours[start]
            start = at


PAGE = Page(
    name="Log",
    order=4,
    key="l",
    routes=(Route("GET", "/log", logs), Route("GET", "/log/{topic}/{partition}", log)),
    is_shown=lambda parts: _looks(parts) is not None,
)
