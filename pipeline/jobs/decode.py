"""``decode``: values by schema. Good rows go to a table or a topic, bad ones to another, as dead letters.

A dead letter has the key, value, headers and timestamp of the original record. Its headers are followed by
those that Kafka Connect adds (``errors.deadletterqueue.context.headers.enable``), all of them strings, so
that tools for Connect's dead letters can read ours. Headers without an equivalent in Connect begin with
``splashdam.errors.``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.jobs.continuing import need_tables_with_rows, note_empty, noted
from splashdam.pipeline.jobs.micro_batches import Batch, Running, held, run_batches
from splashdam.pipeline.jobs.outputs import Output

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from splashdam.pipeline.values.verdicts import ValueFormat


REASON, DETAIL = "reason", "detail"
"""Columns of bad rows: a word that programs may rely on, and a message for people."""

TOPIC_HEADER = "__connect.errors.topic"
PARTITION_HEADER = "__connect.errors.partition"
OFFSET_HEADER = "__connect.errors.offset"
NAME_HEADER = "__connect.errors.connector.name"
STAGE_HEADER = "__connect.errors.stage"
CLASS_HEADER = "__connect.errors.exception.class.name"
MESSAGE_HEADER = "__connect.errors.exception.message"
REASON_HEADER = "splashdam.errors.reason"
TIMESTAMP_HEADER = "splashdam.errors.timestamp"
"""Milliseconds since the epoch."""

STAGE = "VALUE_CONVERTER"
"""Connect's name of the stage in which values are decoded."""
CLASS = "splashdam.pipeline.values.verdicts.BadValueError"


def dead_letters(bad: DataFrame, query: str) -> DataFrame:
    """Return the rows for the sink: ``key``, ``value``, ``headers`` and ``timestamp``.

    Args:
        bad: rows with ``reason``, ``detail`` and any of Kafka's columns.
        query: name of the query that rejected them.
    """
    from pyspark.sql import functions as F

    there = set(bad.columns)
    context: dict[str, Column] = {
        name: F.col(column).cast("string")
        for name, column in (
            (TOPIC_HEADER, "topic"),
            (PARTITION_HEADER, "partition"),
            (OFFSET_HEADER, "offset"),
        )
        if column in there
    }
    if "timestamp" in there:
        context[TIMESTAMP_HEADER] = F.unix_millis("timestamp").cast("string")
    context |= {
        NAME_HEADER: F.lit(query),
        STAGE_HEADER: F.lit(STAGE),
        CLASS_HEADER: F.lit(CLASS),
        MESSAGE_HEADER: F.col(DETAIL),
        REASON_HEADER: F.col(REASON),
    }
    added = F.array(
        *(
            F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
            for name, value in context.items()
        )
    )
    kind = "array<struct<key:string,value:binary>>"
    own = F.coalesce(F.col("headers"), F.array().cast(kind)) if "headers" in there else F.array().cast(kind)
    kept = [name for name in ("key", "value", "timestamp") if name in there]
    return bad.select(*kept, F.concat(own, added.cast(kind)).alias("headers"))


_VERDICT = "__verdict"


@attrs.define
class DecodeReport:
    """Totals of a run of ``decode``; batches that an earlier run finished count, too.

    Attributes:
        batches: batches with rows.
        records: records that were read.
        decoded: records with good values, including tombstones.
        rejected: the others, by reason; see ``values.verdicts.Reason``.
    """

    batches: int = 0
    records: int = 0
    decoded: int = 0
    rejected: dict[str, int] = attrs.field(factory=dict)

    def add(self, counts: Mapping[str | None, int]) -> int:
        """Count a batch by reason, None for good rows; return its number of rows."""
        rows = sum(counts.values())
        self.batches += rows > 0
        self.records += rows
        for reason, count in counts.items():
            if reason is None:
                self.decoded += count
            else:
                self.rejected[reason] = self.rejected.get(reason, 0) + count
        return rows


def with_verdicts(rows: DataFrame, form: ValueFormat) -> DataFrame:
    """Add ``decoded``, ``reason`` and ``detail`` to rows with a binary ``value``, batch or stream.

    ``decoded`` is a struct of the schema's fields. A null value (a tombstone) is good: ``decoded`` is null
    then.

    Raises:
        KafkaConfigurationError: there is no binary ``value``, or the schema has an unsupported type.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.pandas.types import from_arrow_schema

    if dict(rows.dtypes).get("value") != "binary":
        raise KafkaConfigurationError(
            "decode needs a column 'value' of type binary, as Kafka's sources have it"
        )
    form.open()  # raises in the driver what every worker would raise
    verdict = pa.struct([("decoded", form.type), (REASON, pa.string()), (DETAIL, pa.string())])

    def judge(values: Iterator[pa.Array]) -> Iterator[pa.Array]:
        decoder = form.open()
        for column in values:
            found = decoder.decode(column)
            yield pa.StructArray.from_arrays(
                [found.values, found.reasons, found.details], fields=list(verdict)
            )

    # Spark reads the kind of function from its type hints, which must not be strings here.
    judge.__annotations__ = {"values": Iterator[pa.Array], "return": Iterator[pa.Array]}
    kind: Any = from_arrow_schema(pa.schema([("verdict", verdict)]), prefer_timestamp_ntz=True)[
        "verdict"
    ].dataType
    # Marked as not deterministic, because Spark evaluates a deterministic function again for every column
    # that is taken out of its struct.
    function: Any = arrow_udf  # its stub does not accept a function whose hints are set at run time
    asked = function(judge, kind).asNondeterministic()
    judged = rows.withColumn(_VERDICT, asked("value"))
    return judged.select(*rows.columns, f"{_VERDICT}.*")


DECODED, REJECTED = "decoded", "rejected"
"""Names of the two outputs, in the queries of their batches and in their notes."""


def need_decoded(checkpoint: str, good: Output, bad: Output) -> None:
    """Refuse tables that would lack rows which the checkpoint's query has decoded already.

    Raises:
        KafkaConfigurationError: there is one.
    """
    need_tables_with_rows(checkpoint, {DECODED: good, REJECTED: bad}, have_all_rows=True)


def decode(source: DataFrame, form: ValueFormat, good: Output, bad: Output, running: Running) -> DecodeReport:
    """Decode the values of a DataFrame with Kafka's columns, and write every row to one of two outputs.

    A table gets a good row with ``value`` as a struct of its fields, and a bad row unchanged, with ``reason``
    and ``detail``. A topic gets a good record unchanged, and a bad one as ``dead_letters`` returns it. Both
    outputs know the batch, so a batch that is repeated after a crash of the driver duplicates nothing.

    Args:
        source: batch or stream, with a binary ``value``, and with those of ``key``, ``headers``, ``topic``,
            ``partition``, ``offset`` and ``timestamp`` that dead letters should contain.
        form: how values are written.
        good: output of good rows.
        bad: output of bad rows.
        running: checkpoint, name and interval.

    Raises:
        KafkaConfigurationError: the schema or a column is unsuitable, or a stream has no checkpoint, or one
            that a new table would lack rows by.
        KafkaError: raised by an output.
    """
    report = DecodeReport()
    judged = with_verdicts(source, form)
    if source.isStreaming and running.checkpoint is not None:
        need_decoded(running.checkpoint, good, bad)
        good, bad = noted(good, running.checkpoint, DECODED), noted(bad, running.checkpoint, REJECTED)

    def step(batch: Batch) -> int:
        with held(batch.rows) as rows:
            counts = {row[REASON]: row["count"] for row in rows.groupBy(REASON).count().collect()}
            if None in counts:
                right = rows.where(f"{REASON} IS NULL")
                good.write(_as_read(right, good), f"{batch.query}-{DECODED}", batch.number)
            if counts.keys() - {None}:
                wrong = rows.where(f"{REASON} IS NOT NULL").drop("decoded")
                sent = dead_letters(wrong, batch.query) if bad.takes_records else wrong
                bad.write(sent, f"{batch.query}-{REJECTED}", batch.number)
            if not counts and source.isStreaming and running.checkpoint is not None:
                note_empty(running.checkpoint)
            return report.add(counts)

    run_batches(judged, step, running)
    return report


def _as_read(rows: DataFrame, output: Output) -> DataFrame:
    """Return good rows for an output: for a topic the original bytes, for a table the decoded fields."""
    from pyspark.sql import functions as F

    plain = rows.drop(REASON, DETAIL)
    if output.takes_records:
        return plain.drop("decoded")
    columns = [F.col("decoded").alias("value") if name == "value" else F.col(name) for name in plain.columns]
    return plain.select(
        *(column for column, name in zip(columns, plain.columns, strict=True) if name != "decoded")
    )
