"""Options of the pipelines that name a table."""

from __future__ import annotations

from collections.abc import Sequence

import click

from splashdam.cli.parameters import Command


def table_options(command: Command) -> Command:
    """``--format`` and ``--storage``: the command gets ``table_format`` and ``storage``."""
    command = click.option(
        "--storage",
        metavar="NAME=VALUE",
        multiple=True,
        callback=_storage,
        help="For object storage and catalogs: s3.endpoint=…, catalog.uri=…. Repeatable.",
    )(command)
    return click.option(
        "--format",
        "table_format",
        type=click.Choice(["parquet", "delta", "iceberg"]),
        default="parquet",
        show_default=True,
        help="Of the table. Delta needs splashdam[delta], Iceberg splashdam[iceberg].",
    )(command)


def _storage(_context: click.Context, _parameter: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        found[name.strip()] = value.strip()
    return found
