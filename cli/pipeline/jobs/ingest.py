"""``splashdam pipeline ingest``: topics into a table."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from splashdam.cli.commands import OnceCommand
from splashdam.cli.parameters import FiniteRange
from splashdam.cli.pipeline.query_progress import print_summary, query_progress
from splashdam.cli.pipeline.spark import kafka_options, named_place, on_spark, table_options
from splashdam.cli.pipeline.topic_streams import TopicStream, topic_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from splashdam.pipeline.jobs.ingest import Target
    from splashdam.pipeline.plans import Plan

MOST_HOURS = 24 * 365_000
"""A thousand years, before which no file was written; far larger numbers are beyond a clock's reach."""


def _plan(
    *,
    stream: TopicStream,
    table: str,
    kafka: Mapping[str, str],
    table_format: str,
    storage: Mapping[str, str],
    partition_by: tuple[str, ...],
    headers: bool,
    **_: Any,
) -> Plan:
    from splashdam.pipeline.plans.jobs import ingest_plan

    target = _target(table, table_format, storage, partition_by)
    return ingest_plan(stream.plan(stream.options(kafka, headers=headers)), target)


def _target(
    table: str, table_format: str, storage: Mapping[str, str], partition_by: tuple[str, ...]
) -> Target:
    from splashdam.pipeline.jobs.ingest import Target

    return Target(table_format=table_format, place=table, partition_by=partition_by, options=storage)


def _columns(_context: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[str, ...]:
    names = () if text is None else tuple(filter(None, map(str.strip, text.split(","))))
    if text is not None and not names:
        raise click.BadParameter("names no column")
    return names


@click.command(
    cls=OnceCommand,
    example="splashdam pipeline ingest orders tables/orders --checkpoint ckpt",
    short_help="Write topics to a Parquet, Delta or Iceberg table, exactly once.",
)
@topic_stream
@click.argument("table", metavar="TABLE", callback=named_place)
@kafka_options(reads=["topics"])
@on_spark(_plan)
@table_options
@click.option(
    "--partition-by",
    metavar="COLUMN[,…]",
    callback=_columns,
    help="Columns whose values become folders; date is the day of the timestamp, in UTC.",
)
@click.option("--headers", is_flag=True, help="Add a column with the records' headers.")
@click.option(
    "--remove-orphans",
    "orphans_hours",
    type=FiniteRange(0, MOST_HOURS, what="number of hours"),
    metavar="HOURS",
    help="Before the start, delete files of failed attempts that are older than this.",
)
def ingest(
    spark: SparkSession,
    *,
    stream: TopicStream,
    table: str,
    kafka: Mapping[str, str],
    table_format: str,
    storage: Mapping[str, str],
    partition_by: tuple[str, ...],
    headers: bool,
    orphans_hours: float | None,
) -> None:
    """Write the records of topics to TABLE, a folder or a URI such as s3://bucket/flights.

    Each record is written once, wherever the command is killed: start it again with the same checkpoint.
    """
    from splashdam.pipeline.jobs.ingest import ingest as run

    target = _target(table, table_format, storage, partition_by)
    if orphans_hours is not None:
        _remove_orphans(target, orphans_hours)
    with query_progress() as on_progress:
        report = run(
            spark,
            stream.options(kafka, headers=headers),
            target,
            checkpoint=stream.checkpoint,
            trigger_seconds=stream.trigger_seconds,
            on_progress=on_progress,
        )
    print_summary(
        [
            ("records", report.records),
            ("files", report.files),
            ("micro-batches", report.batches),
            ("found in the table", report.batches_found),
        ]
    )


def _remove_orphans(target: Target, hours: float) -> None:
    from splashdam.pipeline.tables import existing_table
    from splashdam.pipeline.tables.table import TableMissingError

    try:
        table = existing_table(target.table_format, target.place, target.options)
    except TableMissingError:
        return
    found = table.remove_orphans(int((time.time() - hours * 3600) * 1000))
    table.close()
    print_summary([("orphans removed", len(found)), ("bytes", sum(file.size_bytes for file in found))])
