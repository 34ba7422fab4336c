"""Prints rows of reference tables: to a terminal as a table that wraps, to a pipe with tabs, or as JSON."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import click

from splashdam.cli.output import is_terminal, output_failures, print_line, print_table
from splashdam.model.options import nearest_name


class Row(Protocol):
    """What both tables have."""

    @property
    def name(self) -> str: ...

    @property
    def doc(self) -> str: ...


Known = TypeVar("Known", bound=Row)


class Cells(NamedTuple):
    """A row as a terminal shows it.

    Attributes:
        names: the name, and another name below it.
        value: default and unit, and the type below them.
        meaning: the text.
    """

    names: tuple[str, str]
    value: tuple[str, str]
    meaning: str


def chosen(
    rows: Iterable[Known], words: Sequence[str], *, what: str, more: Callable[[Known], str]
) -> list[Known]:
    """Return the rows in which every word occurs, those with the words in their names first.

    Dots, dashes and underscores are alike, and so are capitals.

    Args:
        rows: all rows.
        words: what to look for.
        what: option or configuration, for the error.
        more: text of a row to look into, beside name and meaning.

    Raises:
        click.ClickException: there is no such row; the text names the nearest name.
    """
    rows = list(rows)
    wanted = [_alike(word) for word in words]
    found = [row for row in rows if _has(wanted, row.name, row.doc, more(row))]
    if not found:
        nearest = nearest_name(words[0], (row.name for row in rows))
        raise click.ClickException(
            f"no {what} has {' and '.join(map(repr, words))} in name or meaning.{nearest}"
        )
    return sorted(found, key=lambda row: not _has(wanted, row.name, more(row))) if words else found


def _alike(text: str) -> str:
    return re.sub(r"[._-]", "_", text.lower())


def _has(wanted: Iterable[str], *texts: str) -> bool:
    text = _alike("\n".join(texts))
    return all(word in text for word in wanted)


def print_json_array(rows: Iterable[object]) -> None:
    """Print rows as a JSON array of objects."""
    print_line(json.dumps(list(rows), indent=1))


def print_reference(
    head: Sequence[str], rows: Sequence[Sequence[str]], parts: Iterable[tuple[str, Sequence[Cells]]]
) -> None:
    """Print a table.

    Args:
        head: names of the columns in a pipe.
        rows: the same rows for a pipe, a column each.
        parts: titles and rows for a terminal.
    """
    if not is_terminal(sys.stdout):
        print_table(head, rows)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    with output_failures():
        console = Console()
        for title, cells in parts:
            if not cells:
                continue
            table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 1, 0))
            if title:
                console.print(Text(title, "bold underline"))
            table.add_column(overflow="fold", no_wrap=console.width >= _ROOMY)
            table.add_column(overflow="fold", max_width=24)
            table.add_column(overflow="fold", ratio=1, min_width=20)
            for each in cells:
                table.add_row(
                    Text.assemble((each.names[0], "bold"), "\n", (each.names[1], "dim")),
                    Text.assemble((each.value[0], "green"), "\n", (each.value[1], "dim")),
                    Text(each.meaning),  # not markup: [compression] is an extra, not a style
                )
            console.print(table)


_ROOMY = 100
"""Columns of a terminal in which long names need not be broken."""
