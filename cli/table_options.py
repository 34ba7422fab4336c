"""Options of the pipelines that name a table."""

from __future__ import annotations

import click

from splashdam.cli.parameters import Command, pairs


def table_options(command: Command) -> Command:
    """``--format`` and ``--storage``: the command gets ``table_format`` and ``storage``."""
    command = click.option(
        "--storage",
        metavar="NAME=VALUE",
        multiple=True,
        callback=pairs,
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
