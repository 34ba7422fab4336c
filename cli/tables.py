"""Tables on standard output: rich's for people, plain columns for pipes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from splashdam.cli.streams import is_terminal


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Rows under their headings; in a pipe with tabs between the columns, so that scripts can cut them."""
    if not is_terminal(sys.stdout):
        for row in (head, *rows):
            click.echo("\t".join(map(str, row)))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*head, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(str, row))
    Console().print(table)
