"""Draw docs/pictures/architecture.svg: the rooms as boxes, their imports as arrows.

``python tools/architecture_picture.py`` reads the imports of this checkout, types included. The places and
texts of the boxes are in this file. A room without a box, or an import that points up, is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Set
from html import escape
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
import house

PICTURE = house.ROOT / "docs/pictures/architecture.svg"

WIDTH, BOX_WIDTH, BOX_HEIGHT = 960, 280, 66
LEFT, MIDDLE, RIGHT = 20, 340, 660
TOP, ROW = 20, 96

PRODUCER, BROKER, COMMON, AROUND = "#dbe9fb", "#dff1dc", "#eceef1", "#fdf1d6"
LEGEND = (
    (AROUND, "for programs, tests, Spark, the shell"),
    (PRODUCER, "producer"),
    (BROKER, "broker"),
    (COMMON, "shared by both"),
)


class Box(NamedTuple):
    """A room in the picture."""

    x: int
    row: int
    colour: str
    lines: tuple[str, str]


BOXES = {
    "cli": Box(MIDDLE, 0, AROUND, ("the splashdam command,", "one file for each subcommand")),
    "pipeline": Box(LEFT, 1, AROUND, ("PySpark: sources, sinks, tables,", "audits; alone imports pyspark")),
    "facade": Box(MIDDLE, 1, AROUND, ("becomes splashdam: public names,", "loaded on first use")),
    "testing": Box(RIGHT, 1, AROUND, ("for tests: pytest plugin, faults,", "the contract of a cluster")),
    "client": Box(
        MIDDLE, 2, PRODUCER, ("KafkaProducer, AsyncKafkaProducer,", "futures, partitioners, settings")
    ),
    "sender": Box(LEFT, 3, PRODUCER, ("the trio task: metadata, requests,", "retries, transactions")),
    "embedded_broker": Box(
        RIGHT, 3, BROKER, ("server, a handler for each API key,", "groups, transactions, replication")
    ),
    "accumulator": Box(
        LEFT, 4, PRODUCER, ("waiting batches, memory budget,", "readiness; no I/O, clock or lock")
    ),
    "console": Box(MIDDLE, 4, AROUND, ("a page that looks into broker,", "producer and any cluster")),
    "storage": Box(RIGHT, 4, BROKER, ("the log: Kafka's own files,", "recovery, cleaning, inspection")),
    "net": Box(MIDDLE, 5, COMMON, ("connections, TLS, SASL, clocks;", "fetch and admin clients")),
    "record": Box(LEFT, 6, COMMON, ("record batches as bytes;", "Python and Cython twins")),
    "wire": Box(RIGHT, 6, COMMON, ("Kafka's messages, headers, frames;", "sans-IO")),
    "model": Box(MIDDLE, 7, COMMON, ("values, options, the error tree;", "imports nothing of ours")),
}

ON_DEMAND = frozenset({("embedded_broker", "testing"), ("embedded_broker", "console")})
"""Imports that run only when a program asks for faults or a console; they are drawn dashed."""

STYLE = """
text { font-family: system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
.room { font-size: 16px; font-weight: 600; }
.text { font-size: 13px; fill: #424a53; }
.note { font-size: 12px; fill: #57606a; }
.arrow { stroke: #6e7781; stroke-width: 1.5; fill: none; marker-end: url(#tip); }
"""


def room_of(module: str) -> str:
    """Return the room of a module; ``splashdam`` itself is the facade."""
    first = module.split(".")[1:2]
    return first[0] if first and (house.ROOT / first[0]).is_dir() else house.FACE


def imports() -> Set[tuple[str, str]]:
    """Return pairs of rooms: the first imports the second."""
    sources = house.product(house.ROOT)
    pairs = {
        (room_of(name), room_of(module))
        for name, source in sources.items()
        for module in source.imported(sources)
    }
    return {(one, other) for one, other in pairs if one != other}


def reduced(pairs: Set[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the imports that no chain of other imports replaces."""
    for one, other in sorted(pairs):
        others = pairs - {(one, other)}
        reached, new = {one}, {one}
        while new:
            new = {to for start, to in others if start in new} - reached
            reached |= new
        if other not in reached:
            yield one, other


def drawn() -> str:
    """Return the picture."""
    pairs = imports()
    rooms = {room for pair in pairs for room in pair}
    if rooms != BOXES.keys():
        raise ValueError(f"rooms without a box, or boxes without a room: {sorted(rooms ^ BOXES.keys())}")
    upwards = sorted(each for each in pairs - ON_DEMAND if BOXES[each[0]].row >= BOXES[each[1]].row)
    if upwards:
        raise ValueError(f"imports that point up: {upwards}")
    return "\n".join(_lines(list(reduced(pairs - ON_DEMAND)), sorted(pairs & ON_DEMAND))) + "\n"


def _lines(arrows: list[tuple[str, str]], dashed: list[tuple[str, str]]) -> Iterator[str]:
    height = TOP + 8 * ROW + 40
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        f' aria-label="The rooms of splashdam and their imports">'
    )
    yield f"<style>{STYLE}</style>"
    yield (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        ' orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z" fill="#6e7781"/></marker></defs>'
    )
    yield f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>'
    for one, other in arrows:
        yield f'<path class="arrow" d="{_path(BOXES[one], BOXES[other])}"/>'
    for one, other in dashed:
        yield f'<path class="arrow" stroke-dasharray="5 4" d="{_path(BOXES[one], BOXES[other])}"/>'
    for room, box in BOXES.items():
        x, y = box.x, TOP + box.row * ROW
        yield (
            f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"'
            f' fill="{box.colour}" stroke="#8c959f"/>'
        )
        yield f'<text class="room" x="{x + 12}" y="{y + 21}">{escape(room)}/</text>'
        for number, line in enumerate(box.lines):
            yield f'<text class="text" x="{x + 12}" y="{y + 40 + 16 * number}">{escape(line)}</text>'
    y = height - 32
    x = LEFT
    for colour, text in LEGEND:
        yield f'<rect x="{x}" y="{y - 11}" width="14" height="14" rx="3" fill="{colour}" stroke="#8c959f"/>'
        yield f'<text class="note" x="{x + 20}" y="{y}">{escape(text)}</text>'
        x += 40 + 7 * len(text)
    yield (
        f'<text class="note" x="{LEFT}" y="{y + 20}">An arrow is an import, left out where a chain of arrows'
        " leads to the same room. Dashed: only when a program asks for faults or a console.</text>"
    )
    yield "</svg>"


def _path(start: Box, end: Box) -> str:
    """Return a curve from the lower edge of a box to the upper edge of another; upwards from edge to edge."""
    x1, x2 = start.x + BOX_WIDTH // 2, end.x + BOX_WIDTH // 2
    y1, y2 = TOP + start.row * ROW + BOX_HEIGHT, TOP + end.row * ROW - 2
    if start.row > end.row:
        y1, y2 = y1 - BOX_HEIGHT, y2 + BOX_HEIGHT + 4
        return f"M{x1} {y1} L{x2} {y2}"
    if x1 == x2:
        return f"M{x1} {y1} L{x2} {y2}"
    side = 1 if x2 > x1 else -1
    if end.row > start.row + 1:  # past the box below: leave it by the side
        x1, y1, x2 = x1 + side * BOX_WIDTH // 2, y1 - BOX_HEIGHT // 2, x2 - side * BOX_WIDTH // 4
        return f"M{x1} {y1} C{x2} {y1} {x2} {y1} {x2} {y2}"
    x1 += side * BOX_WIDTH // 4
    x2 -= side * BOX_WIDTH // 4
    bend = (y2 - y1) // 2
    return f"M{x1} {y1} C{x1} {y1 + bend} {x2} {y2 - bend} {x2} {y2}"


if __name__ == "__main__":
    PICTURE.write_text(drawn())
