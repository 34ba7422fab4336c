"""Options of the pipelines that read topics as streams: records, triggers, outputs and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from splashdam.cli.parameters import SECONDS, FiniteRange, flag_of, is_given
from splashdam.cli.pipeline.spark import checkpoint_option
from splashdam.model.errors import KafkaConfigurationError, message_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from splashdam.pipeline.jobs.micro_batches import OnProgress, Running
    from splashdam.pipeline.jobs.outputs import Output
    from splashdam.pipeline.plans.jobs import StreamPlan
    from splashdam.pipeline.values.verdicts import ValueFormat

YEAR_SECONDS = 365 * 86_400


def _interval(_context: click.Context, _parameter: click.Parameter, seconds: float | None) -> float | None:
    """Refuse an interval that Spark does not have, before it is started (a click callback)."""
    if seconds is not None:
        from splashdam.pipeline.jobs.micro_batches import interval_of

        try:
            interval_of(seconds)
        except KafkaConfigurationError as error:
            raise click.BadParameter(message_of(error)) from error
    return seconds


_OPTIONS = (
    click.argument("topics", metavar="TOPIC[,…]"),
    checkpoint_option,
    click.option(
        "--follow",
        "trigger_seconds",
        type=FiniteRange(0, YEAR_SECONDS, what=SECONDS),
        metavar="SECONDS",
        callback=_interval,
        help="Run for ever, and look for new records this often. Default: read what is there, and end.",
    ),
    click.option(
        "--max-records",
        type=click.IntRange(min=1),
        help="Approximate limit of records per micro-batch. Default: no limit.",
    ),
    click.option(
        "--starting-offsets",
        default="earliest",
        show_default=True,
        help="Where a new query begins: earliest, latest, or JSON by topic and partition.",
    ),
)


@attrs.frozen
class TopicStream:
    """The records that a pipeline reads, and its trigger; the fields have the names of the options."""

    topics: str
    checkpoint: str
    trigger_seconds: float | None
    max_records: int | None
    starting_offsets: str

    def options(self, kafka: Mapping[str, str], *, headers: bool) -> dict[str, Any]:
        """Return the options of ``kafka-local``.

        Args:
            kafka: of the cluster.
            headers: whether to read the records' headers.
        """
        options: dict[str, Any] = {
            **kafka,
            "subscribe": self.topics,
            "startingOffsets": self.starting_offsets,
            "includeHeaders": str(headers).lower(),
            "initialOffsetsLocation": f"{self.checkpoint}/initial-offsets",
        }
        if self.max_records is not None:
            options["maxOffsetsPerTrigger"] = str(self.max_records)
        return options

    def committed(self, kafka: Mapping[str, str]) -> dict[str, Any]:
        """Return the options for records with headers, by default of committed transactions only."""
        return self.options({_READERS: "read_committed", **kafka}, headers=True)

    def plan(self, source: Mapping[str, str]) -> StreamPlan:
        """Return the stream as the plans of jobs take it.

        Args:
            source: what ``options`` or ``committed`` returned.
        """
        from splashdam.pipeline.plans.jobs import StreamPlan

        return StreamPlan(source, self.checkpoint, self.trigger_seconds)

    def load(self, spark: SparkSession, kafka: Mapping[str, str]) -> DataFrame:
        """Return the records of ``committed`` as a stream."""
        return spark.readStream.format("kafka-local").options(**self.committed(kafka)).load()

    def running(self, on_progress: OnProgress) -> Running:
        from splashdam.pipeline.jobs.micro_batches import Running, interval_of

        return Running(
            self.checkpoint, interval_ms=interval_of(self.trigger_seconds), on_progress=on_progress
        )


def topic_stream(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a `TopicStream`; the command gets ``stream``."""

    @wraps(command)
    def run(*args: Any, **arguments: Any) -> None:
        names = [field.name for field in attrs.fields(TopicStream)]
        stream = TopicStream(**{name: arguments.pop(name) for name in names})
        command(*args, stream=stream, **arguments)

    made: Any = run
    for option in reversed(_OPTIONS):
        made = option(made)
    return made  # type: ignore[no-any-return]  # click's options give back what they were given


def one_place(table: str, topic: str, names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Require exactly one of two options, before anything is started.

    Args:
        table: parameter of the first.
        topic: parameter of the second.
        names: of both options, for the message.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(*args: Any, **arguments: Any) -> None:
            if (arguments[table] is None) == (arguments[topic] is None):
                raise click.UsageError(f"give one of {names}")
            command(*args, **arguments)

        return run

    return decorate


def table_or_topic(
    table: str | None, topic: str | None, tables: Mapping[str, Any], kafka: Mapping[str, str]
) -> Output:
    """Return the output that was given; see ``one_place``.

    Args:
        table: a folder or a URI.
        topic: a name.
        tables: further arguments of `TableOutput`.
        kafka: options of the sink.
    """
    from splashdam.pipeline.jobs.outputs import TableOutput, TopicOutput

    if table is not None:
        return TableOutput(place=table, **tables)
    return TopicOutput(topic or "", {name: text for name, text in kafka.items() if name != _READERS})


_READERS = "kafka.isolation.level"
"""An option that only readers have."""


def _schema_files(
    _context: click.Context, _parameter: click.Parameter, texts: Sequence[str]
) -> dict[int, Path]:
    files: dict[int, Path] = {}
    for text in texts:
        number, equals, file = (part.strip() for part in text.partition("="))
        if not number.isdecimal() or not equals or not file:
            raise click.BadParameter(f"{text!r} is not ID=FILE")
        if files.setdefault(int(number), Path(file)) != Path(file):
            raise click.BadParameter(f"{text!r} contradicts --schema-id {number}={files[int(number)]}")
    return files


_VALUES = (
    click.option(
        "--schema-id",
        "schema_ids",
        metavar="ID=FILE",
        multiple=True,
        callback=_schema_files,
        help="Avro: the schema with this id in the registry. Repeatable.",
    ),
    click.option(
        "--framing",
        type=click.Choice(["confluent", "single-object", "bare"]),
        default="confluent",
        show_default=True,
        help="Avro: what precedes each record.",
    ),
    click.option("--refuse-unknown", is_flag=True, help="JSON: a field that the schema lacks is an error."),
)


@attrs.frozen
class ValueOptions:
    """The format of values; the fields have the names of the options.

    Attributes:
        schema: a schema file; None: values are not decoded.
    """

    schema: Path | None
    schema_ids: Mapping[int, Path]
    framing: str
    refuse_unknown: bool

    def format(self) -> ValueFormat | None:
        """Return the format, None without a schema.

        Raises:
            KafkaConfigurationError: a file is not what it should be.
        """
        from splashdam.pipeline.values.avro import Framing
        from splashdam.pipeline.values.schema_files import read_format

        if self.schema is None:
            return None
        return read_format(
            self.schema,
            framing=Framing(self.framing),
            writers=self.schema_ids,
            refuses_unknown=self.refuse_unknown,
        )

    def required_format(self) -> ValueFormat:
        """Return the format of a command that requires a schema.

        Raises:
            KafkaConfigurationError: a file is not what it should be.
        """
        form = self.format()
        assert form is not None, "--schema is required"
        return form


def value_options(*, is_required: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add ``--schema`` and its options; the command gets ``values``.

    An option without a schema, or for a schema of another kind, is refused. Apply it above ``on_spark``, so
    that this happens before a session is started.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(*args: Any, **arguments: Any) -> None:
            _refuse_strays(click.get_current_context())
            names = [field.name for field in attrs.fields(ValueOptions)]
            values = ValueOptions(**{name: arguments.pop(name) for name in names})
            command(*args, values=values, **arguments)

        made: Callable[..., None] = run
        for option in reversed(_VALUES):
            made = option(made)
        return click.option(
            "--schema",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            required=is_required,
            metavar="FILE",
            help="Schema of the values: Avro (.avsc), or for JSON a JSON Schema (.json) or a Spark DDL.",
        )(made)

    return decorate


def _refuse_strays(context: click.Context) -> None:
    schema: Path | None = context.params["schema"]
    is_avro = schema is not None and schema.suffix == ".avsc"
    strays = ["refuse_unknown"] if is_avro else ["schema_ids", "framing"]
    if schema is None:
        strays.append("refuse_unknown")
    for parameter in strays:
        if is_given(context, parameter):
            flag = flag_of(context, parameter)
            if schema is None:
                raise click.UsageError(f"{flag} needs --schema", context)
            kind, other = ("Avro", "JSON") if is_avro else ("JSON", "Avro")
            raise click.UsageError(
                f"{flag} is for values in {other}, and --schema {schema} is for {kind}", context
            )
