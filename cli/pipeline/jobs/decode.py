"""``splashdam pipeline decode``: decode values by schema, and put bad ones aside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from splashdam.cli.commands import OnceCommand
from splashdam.cli.pipeline.query_progress import print_summary, query_progress
from splashdam.cli.pipeline.spark import kafka_options, named_place, on_spark, table_options
from splashdam.cli.pipeline.topic_streams import (
    TopicStream,
    ValueOptions,
    one_place,
    table_or_topic,
    topic_stream,
    value_options,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from splashdam.pipeline.jobs.outputs import Output
    from splashdam.pipeline.plans import Plan


def _plan(*, stream: TopicStream, kafka: Mapping[str, str], values: ValueOptions, **places: Any) -> Plan:
    from splashdam.pipeline.plans.jobs import decode_plan

    source = stream.plan(stream.committed(kafka))
    return decode_plan(source, values.required_format(), *_outputs(kafka, **places))


def _outputs(
    kafka: Mapping[str, str],
    *,
    table: str | None,
    to_topic: str | None,
    dead_letter_topic: str | None,
    dead_letter_table: str | None,
    table_format: str,
    storage: Mapping[str, str],
) -> tuple[Output, Output]:
    """Return the outputs of good and of bad rows."""
    tables = {"table_format": table_format, "options": storage}
    return (
        table_or_topic(table, to_topic, tables, kafka),
        table_or_topic(dead_letter_table, dead_letter_topic, tables, kafka),
    )


@click.command(
    cls=OnceCommand,
    example="""\
splashdam pipeline decode orders --schema orders.json --checkpoint ckpt \\
  --table orders --dead-letter-table bad""",
    short_help="Decode values by a JSON or Avro schema; bad ones become dead letters.",
)
@topic_stream
@one_place("table", "to_topic", "--table and --topic")
@one_place("dead_letter_table", "dead_letter_topic", "--dead-letter-topic and --dead-letter-table")
@value_options(is_required=True)
@kafka_options(reads=["topics"], writes=["to_topic", "dead_letter_topic"])
@on_spark(_plan)
@click.option(
    "--table", metavar="TABLE", callback=named_place, help="Table for good rows, with value as a struct."
)
@click.option("--topic", "to_topic", metavar="TOPIC", help="Topic for good records, unchanged.")
@click.option("--dead-letter-topic", metavar="TOPIC", help="Topic for bad records; headers have the reason.")
@click.option(
    "--dead-letter-table", metavar="TABLE", callback=named_place, help="Table for bad rows, with the reason."
)
@table_options
def decode(
    spark: SparkSession,
    *,
    stream: TopicStream,
    kafka: Mapping[str, str],
    values: ValueOptions,
    **places: Any,
) -> None:
    """Decode the values of topics.

    Each record goes to one of two outputs, once, wherever the command is killed: start it again with the same
    checkpoint. A value is bad if the schema does not allow it: a required field is missing, a type differs, a
    number is too large, or bytes follow the value.
    """
    from splashdam.pipeline.jobs.decode import decode as run

    good, bad = _outputs(kafka, **places)
    rows, form = stream.load(spark, kafka), values.required_format()
    with query_progress() as on_progress:
        report = run(rows, form, good, bad, stream.running(on_progress))
    rejected = [(f"  {reason}", count) for reason, count in sorted(report.rejected.items())]
    print_summary(
        [
            ("micro-batches", report.batches),
            ("records", report.records),
            ("decoded", report.decoded),
            ("rejected", sum(report.rejected.values())),
            *rejected,
        ]
    )
