"""What the flights look like in the terminal: progress bars, and a picture of the files on disk."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from splashdam.record.batch import iter_headers

CELLS = 60
"""Width of the longest bar."""

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


def stored_batches(directory: Path) -> tuple[int, int]:
    """How many record batches the segment files hold, and their bytes, counted from the files themselves."""
    count = size = 0
    for path in directory.glob("*/*.log"):
        for _, header in iter_headers(path.read_bytes()):
            count += 1
            size += header.size_bytes
    return count, size


def picture(directory: Path, topic: str, partitions: int) -> Table:
    """A row for each partition: its size on disk as a bar, cut where a segment ends."""
    sizes = {number: _segment_sizes(directory / f"{topic}-{number}") for number in range(partitions)}
    largest = max((sum(segments) for segments in sizes.values()), default=0) or 1
    table = Table("partition", "segments", "MB", "on disk", box=None, pad_edge=False)
    for number, segments in sizes.items():
        bar = Text()
        for index, size in enumerate(segments):
            bar.append("█" * max(round(CELLS * size / largest), bool(size)), SHADES[index % len(SHADES)])
            bar.append("▏" if index < len(segments) - 1 else "")
        table.add_row(f"{topic}-{number}", str(len(segments)), f"{sum(segments) / 1e6:.1f}", bar)
    return table


def _segment_sizes(folder: Path) -> list[int]:
    return [path.stat().st_size for path in sorted(folder.glob("*.log"))]
