"""Shows the flights in the terminal: progress bars, and a picture of the files on disk."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from splashdam.record.batch import iter_headers

CELLS = 60
"""Width of the longest bar, if the terminal is wide enough."""

SHADES = ("cyan", "blue")
"""Neighbouring segments take turns, so that each can be seen."""


def progress_bar(console: Console) -> Progress:
    """A bar on a terminal; in a log file, nothing until it is complete."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def stored_batches(directory: Path, topic: str) -> tuple[int, int]:
    """Return the number of batches in a topic's segment files, and their bytes, counted from the files."""
    count = size = 0
    for path in directory.glob(f"{topic}-[0-9]*/*.log"):
        for _, header in iter_headers(path.read_bytes()):
            count += 1
            size += header.size_bytes
    return count, size


def counted(number: int, noun: str) -> str:
    """`1 record`, `2,000 records`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class SegmentBar:
    """The segments of one partition side by side, as wide as the table lets it be."""

    def __init__(self, segments: list[int], largest: int) -> None:
        self.segments = segments
        self.largest = largest

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, CELLS)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # A partition's newest segment is drawn even if it is nearly empty: one cell is kept for it.
        cells = min(CELLS, options.max_width) - 1
        bar = Text(no_wrap=True, overflow="crop")
        total = 0
        for index, size in enumerate(self.segments):
            total += size
            width = max(round(cells * total / self.largest) - len(bar), bool(size))
            end = "▊" if index < len(self.segments) - 1 else "█"
            bar.append(("█" * (width - 1) + end) * bool(width), SHADES[index % len(SHADES)])
        yield bar


def picture(directory: Path, topic: str, partitions: int) -> Table:
    """Return a row for each partition: its size on disk as a bar, cut at the ends of segments."""
    sizes = {number: _segment_sizes(directory / f"{topic}-{number}") for number in range(partitions)}
    largest = max((sum(segments) for segments in sizes.values()), default=0) or 1
    table = Table(box=None, pad_edge=False)
    for title in ("partition", "segments", "MB"):
        table.add_column(title, no_wrap=True)
    table.add_column("on disk")
    for number, segments in sizes.items():
        bar = SegmentBar(segments, largest)
        table.add_row(f"{topic}-{number}", str(len(segments)), f"{sum(segments) / 1e6:.1f}", bar)
    return table


def _segment_sizes(folder: Path) -> list[int]:
    return [path.stat().st_size for path in sorted(folder.glob("*.log"))]
