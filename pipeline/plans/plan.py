"""The plan of a pipeline as a value, and as lines of text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@attrs.frozen
class Entry:
    """One thing that is read, written or committed.

    Attributes:
        what: in one line.
        details: further lines, indented below it.
    """

    what: str
    details: Sequence[str] = ()


@attrs.frozen
class Plan:
    """What a pipeline would do.

    Attributes:
        reads: where its rows come from.
        writes: where they go.
        commits: what makes a step count, in the order in which it happens.
        left_to_spark: does the check that only a running Spark can do; the job does it again. None: nothing
            is left to check.
    """

    reads: Sequence[Entry]
    writes: Sequence[Entry]
    commits: Sequence[Entry]
    left_to_spark: Callable[[SparkSession], None] | None = None

    def lines(self) -> Iterator[str]:
        """Yield the lines that ``--plan`` prints."""
        for title, entries in (("reads", self.reads), ("writes", self.writes), ("commits", self.commits)):
            for number, entry in enumerate(entries):
                yield f"{title if number == 0 else '':<8} {entry.what}"
                yield from (f"{'':<8}   {detail}" for detail in entry.details)


def shown_size(size_bytes: int | None) -> str:
    """Return a number of bytes in the largest unit that keeps it above 1."""
    if size_bytes is None:
        return "an unknown number of bytes"
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def counted(count: int, noun: str, many: str = "") -> str:
    """Return a number with its noun in the right form."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def table_of(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return rows as lines whose cells stand below each other: names to the left, figures to the right."""
    cells = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if number == 0 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
