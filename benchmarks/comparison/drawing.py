"""Bar charts as SVG, readable on light and dark pages: just enough of it for this project's pictures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from textwrap import wrap

import attrs

from splashdam.pipeline import svg

WIDTH = 860
LABEL_WIDTH = 250
TEXT_WIDTH = 190
"""Room behind the longest bar for its value."""
MARGIN = 24
BAR_HEIGHT = 16
BAR_STEP = 22
TITLE_STEP = 30
LINE_STEP = 17
CAPTION_CHARACTERS = 125

STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; }
  .title { font-weight: 600; }
  .head { font-size: 17px; font-weight: 600; }
  .dim { fill: #59636e; font-weight: 400; }
  .caption { font-size: 11px; fill: #59636e; }
  .page { fill: #ffffff; stroke: #d0d7de; }
  .bar { fill: #b6bfc9; }
  .ours { fill: #0b7285; }
  .mark { stroke: #1f2328; stroke-width: 1.5; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; }
    .dim, .caption { fill: #9198a1; }
    .page { fill: #0d1117; stroke: #3d444d; }
    .bar { fill: #4d5662; }
    .ours { fill: #22b8cf; }
    .mark { stroke: #f0f6fc; }
  }
"""


@attrs.frozen
class Bar:
    """One bar; `text` stands behind it, a thin line shows the range."""

    label: str
    value: float
    text: str
    low: float
    high: float
    ours: bool = False


@attrs.frozen
class Group:
    """Bars of one scale, under a title; `hint` says what is measured and which way is better."""

    title: str
    hint: str
    bars: Sequence[Bar]


def chart(heading: str, groups: Sequence[Group], caption: Sequence[str]) -> str:
    """Draw all groups below each other, with the caption at the foot."""
    drawn = [svg.text(MARGIN, MARGIN + 14, heading, css_class="head")]
    at = MARGIN + 26
    for group in groups:
        drawn += _group(group, at)
        at += TITLE_STEP + BAR_STEP * len(group.bars) + 8
    at += 8
    return _finished(heading, drawn, at, caption)


def _group(group: Group, top: int) -> list[str]:
    full = max(bar.high for bar in group.bars)
    scale = (WIDTH - 2 * MARGIN - LABEL_WIDTH - TEXT_WIDTH) / full
    hint = svg.element("tspan", escape(group.hint), css_class="dim", dx=10)
    drawn = [svg.element("text", escape(group.title), hint, css_class="title", x=MARGIN, y=top + 20)]
    for number, bar in enumerate(group.bars):
        drawn += _bar(bar, top + TITLE_STEP + number * BAR_STEP, scale)
    return drawn


def _bar(bar: Bar, top: int, scale: float) -> list[str]:
    left, middle = MARGIN + LABEL_WIDTH, top + BAR_HEIGHT / 2
    low, high = left + bar.low * scale, left + bar.high * scale
    kind = "ours" if bar.ours else "bar"
    return [
        svg.text(left - 8, top + 13, bar.label, anchor="end", css_class="title" if bar.ours else ""),
        svg.rectangle(left, top, max(bar.value * scale, 1), BAR_HEIGHT, css_class=kind, rx=2),
        svg.element("line", css_class="mark", x1=low, y1=middle, x2=high, y2=middle),
        svg.text(high + 8, top + 13, bar.text),
    ]


@attrs.frozen
class Stage:
    """One part of a stacked bar; `share` is its length in the bar's own unit."""

    label: str
    share: float
    text: str


def stages(heading: str, rows: Sequence[tuple[str, Sequence[Stage]]], caption: Sequence[str]) -> str:
    """Stacked bars on one scale, each with a legend of its parts below it."""
    full = max(sum(stage.share for stage in parts) for _, parts in rows)
    scale = (WIDTH - 2 * MARGIN) / full
    drawn = [svg.text(MARGIN, MARGIN + 14, heading, css_class="head")]
    at = MARGIN + 34
    for title, parts in rows:
        drawn.append(svg.text(MARGIN, at + 14, title, css_class="title"))
        at += 22
        drawn += _stacked(parts, at, scale)
        at += 34 + LINE_STEP * len(parts)
    return _finished(heading, drawn, at, caption)


def _stacked(parts: Sequence[Stage], top: int, scale: float) -> list[str]:
    drawn, left = [], float(MARGIN)
    for number, stage in enumerate(parts):
        fade = 1 - 0.75 * number / max(1, len(parts) - 1)
        drawn.append(
            svg.rectangle(
                left, top, stage.share * scale, BAR_HEIGHT + 6, css_class="ours", rx=2, opacity=fade
            )
        )
        left += stage.share * scale
        line = top + 42 + LINE_STEP * number
        drawn += [
            svg.rectangle(MARGIN, line - 10, 11, 11, css_class="ours", rx=2, opacity=fade),
            svg.text(MARGIN + 96, line, stage.text, css_class="title", anchor="end"),
            svg.text(MARGIN + 108, line, stage.label),
        ]
    return drawn


def _finished(heading: str, drawn: list[str], at: float, caption: Sequence[str]) -> str:
    """The page with its caption below everything else."""
    for line in (part for text in caption for part in wrap(text, CAPTION_CHARACTERS)):
        at += LINE_STEP
        drawn.append(svg.text(MARGIN, at, line, css_class="caption"))
    height = at + MARGIN - 6
    page = svg.rectangle(0.5, 0.5, WIDTH - 1, height - 1, css_class="page", rx=8)
    parts = "\n".join([svg.element("style", STYLE), page, *drawn])
    return svg.picture(WIDTH, height, [parts], width=WIDTH, height=height, aria_label=heading) + "\n"
