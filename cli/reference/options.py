"""``splashdam options``: the options of the producers."""

from __future__ import annotations

from collections.abc import Sequence

import click

from splashdam.cli.commands import OnceCommand
from splashdam.cli.reference.tables import Cells, chosen, print_json_array, print_reference
from splashdam.client.settings.option_table import SECTIONS, OptionRow, option_rows


@click.command(cls=OnceCommand, example="splashdam options linger")
@click.argument("words", nargs=-1, metavar="[WORD]...")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array of objects.")
def options(words: Sequence[str], as_json: bool) -> None:
    """Show the options of KafkaProducer and AsyncKafkaProducer.

    Each has its Python name with Kafka's name for properties below it, its default and unit with the type
    below them, and its meaning. With WORDs, only options that have them all in a name or in the meaning.
    """
    rows = chosen(option_rows(), words, what="option", more=lambda row: row.kafka)
    if as_json:
        print_json_array(row._asdict() for row in rows)
        return
    head = ("option", "type", "default", "unit", "kafka", "meaning")
    titles = ("",) if words else SECTIONS
    parts = [(title, [_cells(row) for row in rows if title in ("", row.section)]) for title in titles]
    print_reference(head, [row[:6] for row in rows], parts)


def _cells(row: OptionRow) -> Cells:
    return Cells((row.name, row.kafka), (f"{row.default or 'None'} {row.unit}", row.type), row.doc)
