"""``splashdam pipeline replay``: a table back into topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from splashdam.cli.commands import OnceCommand
from splashdam.cli.pipeline.query_progress import print_summary, query_progress
from splashdam.cli.pipeline.spark import (
    checkpoint_option,
    kafka_options,
    named_place,
    on_spark,
    table_options,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from splashdam.pipeline.plans import Plan


def _plan(
    *,
    table: str,
    kafka: Mapping[str, str],
    table_format: str,
    storage: Mapping[str, str],
    checkpoint: str,
    topic: str | None,
    delivery: str,
) -> Plan:
    from splashdam.pipeline.plans.jobs import replay_plan

    sink = _sink(kafka, topic, delivery)
    return replay_plan(table_format, table, sink, checkpoint=checkpoint, table_options=storage)


def _sink(kafka: Mapping[str, str], topic: str | None, delivery: str) -> dict[str, str]:
    return {**kafka, "delivery": delivery, **({} if topic is None else {"topic": topic})}


@click.command(
    cls=OnceCommand,
    example="splashdam pipeline replay tables/orders --checkpoint ckpt",
    short_help="Send a table back to topics, with the original partitions.",
)
@click.argument("table", metavar="TABLE", callback=named_place)
@kafka_options(writes=["topic"])
@on_spark(_plan)
@table_options
@checkpoint_option
@click.option("--topic", help="Topic for all records. Default: the topics that they came from.")
@click.option(
    "--delivery",
    type=click.Choice(["at_least_once", "dedup", "exactly_once"]),
    default="exactly_once",
    show_default=True,
    help="Guarantee for records of a step that is repeated after a crash.",
)
def replay(
    spark: SparkSession,
    *,
    table: str,
    kafka: Mapping[str, str],
    table_format: str,
    storage: Mapping[str, str],
    checkpoint: str,
    topic: str | None,
    delivery: str,
) -> None:
    """Send the records of TABLE to the partitions that they came from, each partition in its order.

    Keys, values, timestamps and headers are the original ones. The topics must exist. Started again with the
    same checkpoint, it continues where it stopped.
    """
    from splashdam.pipeline.jobs.replay import replay as run

    with query_progress() as on_progress:
        report = run(
            spark,
            table_format,
            table,
            _sink(kafka, topic, delivery),
            checkpoint=checkpoint,
            table_options=storage,
            on_progress=on_progress,
        )
    print_summary([("records", report.records), ("steps", report.batches), ("steps in all", report.steps)])
