"""``splashdam configs``: the configuration of broker and topics."""

from __future__ import annotations

from collections.abc import Sequence

import click

from splashdam.cli.commands import OnceCommand
from splashdam.cli.reference.tables import Cells, chosen, print_json_array, print_reference
from splashdam.embedded_broker.configs.table import KnownConfig, Scope, known_configs, meaning_of
from splashdam.model.options import unit_in


@click.command(cls=OnceCommand, example="splashdam configs retention --scope topic")
@click.argument("words", nargs=-1, metavar="[WORD]...")
@click.option(
    "--scope",
    type=click.Choice([scope.value for scope in Scope]),
    help="Only what can be set on a broker, or on a topic.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array of objects.")
def configs(words: Sequence[str], scope: str | None, as_json: bool) -> None:
    """Show the configuration of the embedded broker and of its topics, by Kafka's names.

    Each has its default and unit with the type below them, and its meaning. With WORDs, only names that have
    them all in the name or in the meaning.
    """
    known = [row for row in known_configs() if scope in (None, row.scope.value)]
    rows = chosen(known, words, what="configuration", more=lambda row: row.without_effect)
    if as_json:
        print_json_array(
            {
                "name": row.name,
                "scope": row.scope.value,
                "type": row.kind,
                "default": row.default,
                "unit": unit_in(row.name),
                "synonyms": row.synonyms,
                "meaning": row.doc,
                "without_effect": row.without_effect,
            }
            for row in rows
        )
        return
    head = ("name", "scope", "type", "default", "unit", "meaning")
    flat = [
        (row.name, row.scope.value, row.kind, row.default, unit_in(row.name), meaning_of(row)) for row in rows
    ]
    parts = [
        (f"On a {each.value}", [_cells(row) for row in rows if row.scope is each and row.doc])
        for each in Scope
    ]
    ignored = [_cells(row) for row in rows if not row.doc]
    print_reference(head, flat, [*parts, ("Known and without any effect", ignored)])


def _cells(row: KnownConfig) -> Cells:
    return Cells((row.name, ""), (f"{row.default} {unit_in(row.name)}", row.kind), meaning_of(row))
