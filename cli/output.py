"""Output of commands: standard streams, tables, progress bars and counted nouns.

A terminal gets rich tables, a pipe plain columns. Standard streams may be closed (``<&-`` in a shell).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, TextIO

import click


def standard_input() -> BinaryIO:
    """Return standard input as a binary stream.

    Raises:
        click.ClickException: it is closed.
    """
    return _open(sys.stdin, "standard input").buffer


def standard_output() -> BinaryIO:
    """Return standard output as a binary stream.

    Raises:
        click.ClickException: it is closed.
    """
    return _open(sys.stdout, "standard output").buffer


def _open(stream: TextIO | None, name: str) -> TextIO:
    if stream is None:  # Python sets it to None if the descriptor was closed at start
        raise click.ClickException(f"{name} is closed")
    return stream


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether the stream is a terminal; False if it is closed."""
    return stream is not None and stream.isatty()


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under headings; in a pipe the columns are separated by tabs, for ``cut``."""
    if not is_terminal(sys.stdout):
        for row in (head, *rows):
            click.echo("\t".join(map(str, row)))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*head, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(str(each)) for each in row))  # no markup: [a] in a name is not a style
    Console().print(table)


_WORTH_A_BAR_BYTES = 64 * 1024 * 1024


@contextmanager
def bytes_read(total: int, *, is_wanted: bool = True) -> Iterator[Callable[[int], None]]:
    """Show a progress bar over ``total`` bytes if there are enough of them to wait for.

    Args:
        total: bytes in all.
        is_wanted: False if the bar would mix with lines of output.
    """
    if not is_wanted or total < _WORTH_A_BAR_BYTES or not is_terminal(sys.stderr):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.advance(task, count)


def counted(number: int, noun: str) -> str:
    """Return ``1 record`` or ``2,000 records``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
