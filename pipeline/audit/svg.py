"""Small pictures as SVG text: bars, histograms, and a map of what is there. Colours are those of the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

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
