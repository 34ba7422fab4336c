"""``splashdam pipeline latest``: the newest value of each key in a Delta table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from splashdam.cli.commands import OnceCommand
from splashdam.cli.pipeline.query_progress import print_summary, query_progress
from splashdam.cli.pipeline.spark import kafka_options, named_place, on_spark
from splashdam.cli.pipeline.topic_streams import TopicStream, topic_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from splashdam.pipeline.plans import Plan


def _plan(*, stream: TopicStream, kafka: Mapping[str, str], table: str) -> Plan:
    from splashdam.pipeline.plans.jobs import latest_plan

    return latest_plan(stream.plan(stream.committed(kafka)), table)


@click.command(
    cls=OnceCommand,
    example="splashdam pipeline latest orders tables/latest --checkpoint ckpt",
    short_help="Keep the newest value of each key in a Delta table, as compaction does.",
)
@topic_stream
@click.argument("table", metavar="TABLE", callback=named_place)
@kafka_options(reads=["topics"])
@on_spark(_plan)
def latest(spark: SparkSession, *, stream: TopicStream, kafka: Mapping[str, str], table: str) -> None:
    """Keep TABLE at the newest value of each key of topics; a null value deletes its key.

    TABLE is the folder of a Delta table: pip install 'splashdam[delta]'. Each micro-batch is one commit,
    wherever the command is killed: start it again with the same checkpoint.
    """
    from splashdam.pipeline.jobs.latest import latest_into_delta

    with query_progress() as on_progress:
        report = latest_into_delta(stream.load(spark, kafka), table, stream.running(on_progress))
    print_summary(
        [
            ("micro-batches", report.batches),
            ("records", report.records),
            ("without key", report.without_key),
            ("newest values", report.keys),
            ("tombstones", report.tombstones),
        ]
    )
