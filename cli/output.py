"""Output of commands: standard streams, files, tables, progress bars and counted nouns.

A terminal gets rich tables, a pipe plain columns. Standard streams may be closed (``<&-`` in a shell), and
a disk may be full: whatever a command writes, it writes by these functions, whose errors say what failed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO

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


class OutputFailure(click.ClickException):
    """Writing to standard output failed for another reason than a closed pipe."""


@contextmanager
def output_failures() -> Iterator[None]:
    """Report a failed write of the block to standard output, and forget what is still buffered.

    Raises:
        BrokenPipeError: the reader has closed the pipe, which ends a command quietly.
        OutputFailure: the write failed for another reason.
    """
    try:
        yield
    except OSError as error:
        _forget_output()
        if isinstance(error, BrokenPipeError):
            raise
        raise OutputFailure(f"writing to standard output: {error.strerror or error}") from error


def _forget_output() -> None:
    """Send buffered output to /dev/null: the interpreter writes it at exit, and would fail once more."""
    with suppress(OSError, ValueError):  # in a test standard output may have no descriptor
        descriptor = sys.stdout.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def print_line(text: str) -> None:
    """Print a line to standard output."""
    with output_failures():
        click.echo(text)


def write_file(path: Path, text: str) -> None:
    """Write a file that an option of the command names.

    Raises:
        click.ClickException: it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"writing to {path}: {error.strerror or error}") from error


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether the stream is a terminal; False if it is closed."""
    return stream is not None and stream.isatty()


class Shown(NamedTuple):
    """A cell that a person reads in another form than a program.

    Attributes:
        value: the number that a pipe and JSON get; None if it is unknown.
        text: on a terminal.
    """

    value: int | None
    text: str


def shown_bytes(count: int | None) -> Shown:
    """Return a number of bytes, in larger units on a terminal."""
    if count is None:
        return Shown(None, "-")
    size, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return Shown(count, f"{count} B" if unit == "B" else f"{size:.1f} {unit}")


def shown_age(timestamp_ms: int | None, now_ms: int) -> Shown:
    """Return a time in milliseconds since the epoch, on a terminal as its age."""
    if timestamp_ms is None:
        return Shown(None, "-")
    seconds = (now_ms - timestamp_ms) // 1000
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        if seconds >= length:
            return Shown(timestamp_ms, f"{seconds // length} {unit} ago")
    return Shown(timestamp_ms, "now" if seconds == 0 else f"in {-seconds} s")


def print_listing(columns: Sequence[str], rows: Sequence[Sequence[object]], *, as_json: bool) -> None:
    """Print rows as a table, or each as a line of JSON with the columns' names, spaces as underscores.

    None is a hyphen in the table and null in JSON; a list is separated by commas, or a JSON list.
    """
    if as_json:
        for row in rows:
            print_json(dict(zip(columns, row, strict=True)))
        return
    is_read = is_terminal(sys.stdout)
    print_table(columns, [[_cell(value, is_read) for value in row] for row in rows])


def print_json(fields: Mapping[str, object]) -> None:
    """Print an object as a line, with underscores for the spaces in its names."""
    print_line(json.dumps(_plain(fields), ensure_ascii=False))


def _plain(value: object) -> object:
    if isinstance(value, Shown):
        return value.value
    if isinstance(value, Mapping):
        return {str(name).replace(" ", "_"): _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _cell(value: object, is_read: bool) -> str:
    if isinstance(value, Shown):
        return value.text if is_read else _cell(value.value, is_read)
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under headings; in a pipe the columns are separated by tabs, for ``cut``."""
    if not is_terminal(sys.stdout):
        for row in (head, *rows):
            print_line("\t".join(map(str, row)))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(head):
        cells = [str(row[number]) for row in rows]
        is_number = bool(cells) and all(cell == "-" or cell[0].isdigit() for cell in cells if cell)
        longest_word = max(map(len, name.split()))
        table.add_column(
            name, justify="right" if is_number else "left", overflow="fold", min_width=longest_word
        )
    for row in rows:
        table.add_row(*(Text(str(each)) for each in row))  # no markup: [a] in a name is not a style
    with output_failures():
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
