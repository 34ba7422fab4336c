"""Shows the delays: in the terminal, and as a page with a map of hours and airlines."""

from __future__ import annotations

from html import escape

from flights_delays import AIRPORTS, Board, Delays, together
from rich.style import Style
from rich.table import Table
from rich.text import Text

HOURS = range(5, 24)
"""Hours of the day in New York; no flight is scheduled in the others."""

STEPS = (0, 5, 10, 15, 20, 30)
"""Minutes of mean delay at which the colour changes."""

COLOURS = ("#2c7bb6", "#7fb8d8", "#c9dfe6", "#f5d28a", "#f0995a", "#dd5340", "#a51626")

HEIGHTS = "▁▂▃▄▅▆█"
"""The steps as blocks, for terminals without colours."""

_CELL, _LEFT, _TOP = 34, 60, 26

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --paper: #fff; --line: #d5dbe4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf1; --paper: #12161d; --line: #323b49; } }
body { margin: 24px auto; max-width: 900px; padding: 0 16px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
table { border-collapse: collapse; } td, th { padding: 3px 14px 3px 0; border-bottom: 1px solid var(--line); }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } th { text-align: left; }
.key span { white-space: nowrap; }
.key i { display: inline-block; width: 14px; height: 14px; margin: 0 4px 0 12px; vertical-align: -2px; }
"""


def colour(mean: float) -> str:
    """Return the colour of a mean delay: blue is early, red is late."""
    return COLOURS[_step(mean)]


def _step(mean: float) -> int:
    return sum(mean >= step for step in STEPS)


def table(board: Board) -> Table:
    """Return a row for each airline: flights, cancellations, mean delay per airport, a cell per hour."""
    shown = Table(box=None, pad_edge=False, title="mean departure delay in minutes", title_justify="left")
    for name in ("airline", "flights", "cancelled", *AIRPORTS):
        shown.add_column(name, justify="left" if name == "airline" else "right", no_wrap=True)
    shown.add_column(f"{HOURS[0]} to {HOURS[-1]} h", no_wrap=True)
    by_hour = board.by_airline_and_hour()
    for carrier, airports in board.by_airline_and_airport().items():
        total = together(airports)
        means = [_minutes(airports.get(airport, Delays())) for airport in AIRPORTS]
        cancelled = f"{1 - total.departed / (total.scheduled or 1):.1%}"
        shown.add_row(carrier, f"{total.scheduled:,}", cancelled, *means, _strip(by_hour[carrier]))
    return shown


def _minutes(delays: Delays) -> str:
    return "" if delays.mean is None else f"{delays.mean:.1f}"


def _strip(hours: dict[int, Delays]) -> Text:
    strip = Text()
    for hour in HOURS:
        mean = hours.get(hour, Delays()).mean
        if mean is None:
            strip.append(" ")
        else:
            strip.append(HEIGHTS[_step(mean)], Style(color=colour(mean)))
    return strip


def page(board: Board, title: str) -> str:
    """Return one HTML page with the map, its key, and the worst hours of the year."""
    key = "".join(
        f'<span><i style="background:{shade}"></i>{text}</span>'
        for shade, text in zip(COLOURS, ("early", *(f"from {step} min" for step in STEPS)), strict=True)
    )
    head = '<tr><th>hour</th><th>airline</th><th>airport</th><th class="n">flights</th>'
    rows = "".join(
        f"<tr><td>{hour:%Y-%m-%d %H}:00</td><td>{carrier}</td><td>{origin}</td>"
        f'<td class="n">{delays.scheduled}</td><td class="n">{delays.mean or 0:.0f}</td></tr>'
        for hour, carrier, origin, delays in board.worst(15)
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>\n<h1>{escape(title)}</h1>\n"
        f'<p class="key">Mean departure delay by airline and hour of the day in New York:{key}</p>\n'
        f"{heat_map(board)}\n<h2>The hours with the most minutes of delay</h2>\n"
        f'<table>{head}<th class="n">mean delay, min</th></tr>{rows}</table>\n</body></html>\n'
    )


def heat_map(board: Board) -> str:
    """Draw a row for each airline, and a column for each hour of the day."""
    rows = board.by_airline_and_hour()
    parts = [_text(_LEFT + (hour - HOURS[0] + 0.5) * _CELL, 16, f"{hour}", "middle") for hour in HOURS]
    for number, (carrier, hours) in enumerate(rows.items()):
        y = _TOP + number * _CELL
        parts.append(_text(_LEFT - 10, y + _CELL * 0.6, carrier, "end"))
        for hour, delays in sorted(hours.items()):
            if delays.mean is not None and hour in HOURS:
                x = _LEFT + (hour - HOURS[0]) * _CELL
                said = f"{carrier}, {hour} h: {delays.mean:.1f} min, {delays.departed:,} flights"
                parts.append(
                    f'<rect x="{x + 1}" y="{y + 1}" width="{_CELL - 2}" height="{_CELL - 2}" rx="4" '
                    f'fill="{colour(delays.mean)}"><title>{said}</title></rect>'
                )
    width, height = _LEFT + len(HOURS) * _CELL, _TOP + len(rows) * _CELL
    return f'<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
