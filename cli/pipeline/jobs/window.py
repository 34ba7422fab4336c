"""``splashdam pipeline window``: aggregate over event time, with a table for late rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from splashdam.cli.commands import OnceCommand
from splashdam.cli.exiting import failures_reported
from splashdam.cli.pipeline.query_progress import print_summary, query_progress
from splashdam.cli.pipeline.spark import kafka_options, named_place, on_spark, table_options
from splashdam.cli.pipeline.topic_streams import TopicStream, ValueOptions, topic_stream, value_options
from splashdam.model.errors import KafkaConfigurationError, message_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from splashdam.pipeline.jobs.outputs import TableOutput
    from splashdam.pipeline.jobs.window import WindowReport
    from splashdam.pipeline.jobs.window_query import Aggregate, Key, WindowQuery
    from splashdam.pipeline.plans import Plan


def _plan(
    *,
    stream: TopicStream,
    kafka: Mapping[str, str],
    query: WindowQuery,
    values: ValueOptions,
    close_all: bool,
    **places: Any,
) -> Plan:
    from splashdam.pipeline.plans.jobs import window_plan

    return window_plan(stream.plan(stream.committed(kafka)), query, values.format(), *_outputs(**places))


def _outputs(
    table: str, late_table: str, table_format: str, storage: Mapping[str, str]
) -> tuple[TableOutput, TableOutput]:
    """Return the outputs of closed windows and of late rows."""
    from splashdam.pipeline.jobs.outputs import TableOutput

    return (
        TableOutput(table_format, table, options=storage),
        TableOutput(table_format, late_table, options=storage),
    )


def _parsed(kind: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback that parses an option with ``parse_KIND``, before Spark is started."""

    def parse(_context: click.Context, _parameter: click.Parameter, given: Any) -> Any:
        from splashdam.pipeline.jobs import window_query

        of_text = getattr(window_query, f"parse_{kind}")
        try:
            if given is None:
                return None
            return tuple(map(of_text, given)) if isinstance(given, tuple) else of_text(given)
        except KafkaConfigurationError as error:
            raise click.BadParameter(message_of(error)) from error

    return parse


def _duration(name: str, **more: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add ``--NAME DURATION``; the command gets ``NAME_ms``."""
    return click.option(
        f"--{name}", f"{name}_ms", metavar="DURATION", callback=_parsed("duration_ms"), **more
    )


def _window_query(command: Callable[..., None]) -> Callable[..., None]:
    """Build and check the query before Spark is started; the command gets ``query``."""

    @wraps(command)
    def run(
        *args: Any,
        size_ms: int,
        slide_ms: int | None,
        delay_ms: int,
        time: str,
        keys: tuple[Key, ...],
        aggregates: tuple[Aggregate, ...],
        stream: TopicStream,
        close_all: bool,
        **arguments: Any,
    ) -> None:
        from splashdam.pipeline.jobs.window_query import WindowQuery

        if close_all and stream.trigger_seconds is not None:
            raise click.UsageError(
                "--close-all closes windows when the run ends, and with --follow it does not end"
            )
        with failures_reported():
            query = WindowQuery(time, size_ms, delay_ms, aggregates, keys, slide_ms)
        command(*args, query=query, stream=stream, close_all=close_all, **arguments)

    return run


@click.command(
    cls=OnceCommand,
    example="""\
splashdam pipeline window orders --size 1h --checkpoint ckpt \\
  --table hours --late-table late""",
    short_help="Aggregate by event-time windows; late rows go to a table of their own.",
)
@topic_stream
@_window_query
@value_options(is_required=False)
@kafka_options(reads=["topics"])
@on_spark(_plan)
@_duration("size", required=True, help="Length of a window: 90s, 5m, 1h, 1d.")
@_duration("slide", help="Distance between the starts of windows. Default: --size.")
@_duration(
    "delay",
    default="0s",
    show_default=True,
    help="How far the watermark stays behind the latest event time.",
)
@click.option(
    "--time", "time", metavar="EXPRESSION", default="timestamp", show_default=True, help="The event time."
)
@click.option(
    "--by",
    "keys",
    metavar="[NAME=]EXPRESSION",
    callback=_parsed("key"),
    multiple=True,
    help="Group by this expression. Repeatable.",
)
@click.option(
    "--compute",
    "aggregates",
    metavar="[NAME=]FUNCTION(EXPRESSION)",
    callback=_parsed("aggregate"),
    multiple=True,
    default=["count"],
    help="count, sum, avg, min or max. Repeatable. Default: count.",
)
@click.option(
    "--table", metavar="TABLE", required=True, callback=named_place, help="Table for closed windows."
)
@click.option(
    "--late-table", metavar="TABLE", required=True, callback=named_place, help="Table for late rows."
)
@click.option("--close-all", is_flag=True, help="At the end, close the windows that are open.")
@table_options
def window(
    spark: SparkSession,
    *,
    stream: TopicStream,
    kafka: Mapping[str, str],
    query: WindowQuery,
    close_all: bool,
    values: ValueOptions,
    **places: Any,
) -> None:
    """Aggregate the records of topics by windows of their event time.

    With --schema, expressions use fields of values as decoded.FIELD, which are null if the value is bad. Each
    row counts once, wherever the command is killed: in its window, or in the table of late rows.
    """
    from splashdam.pipeline.jobs.decode import with_verdicts
    from splashdam.pipeline.jobs.window import window as run

    source = stream.load(spark, kafka)
    form = values.format()
    if form is not None:
        source = with_verdicts(source, form).drop("detail").withColumnRenamed("reason", "rejected")
    output, side = _outputs(**places)
    with query_progress() as on_progress:
        report = run(source, query, output, side, stream.running(on_progress), close_all=close_all)
    _summarize(report)


def _summarize(report: WindowReport) -> None:
    behind = report.watermark_us
    watermark = "none yet" if behind is None else datetime.fromtimestamp(behind // 1_000_000, UTC).isoformat()
    print_summary(
        [
            ("micro-batches", report.batches),
            ("records", report.records),
            ("late", report.late),
            ("without time", report.without_time),
            ("windows", report.windows),
            ("watermark", watermark),
        ]
    )
