"""``ingest``: topics into a table, each record exactly once.

An ingest without a transformation reads topics as a stream of files: a task fetches, decodes and writes its
file in one go, so that records never cross to Spark's JVM and back, which sees only names of files. Spark
plans, checkpoints and repeats this internal source as it does ``kafka-local``, whose options it has.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs
from pyspark.sql.datasource import DataSource

from splashdam.pipeline.jobs.continuing import need_table
from splashdam.pipeline.jobs.micro_batches import (
    BatchProgress,
    OnProgress,
    follow,
    interval_of,
    triggered,
)
from splashdam.pipeline.jobs.outputs import TableOutput
from splashdam.pipeline.local_source.options import includes_headers, source_options
from splashdam.pipeline.local_source.stream_reader import StreamReader
from splashdam.pipeline.options import from_text
from splashdam.pipeline.schema import all_columns
from splashdam.pipeline.tables.opening import open_table
from splashdam.pipeline.tables.streaming import (
    WRITING,
    CommittedBatch,
    OnCommit,
    files_into_table,
    into_table,
    table_schema,
)
from splashdam.pipeline.tables.table import Table
from splashdam.pipeline.tables.writing import FILES_DDL, Writing, files_to_arrow, write_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

FORMAT = "kafka-local-files"
"""Internal: `splashdam.pipeline.jobs.ingest` is how it is used."""


class IngestSource(DataSource):
    """The internal source; its options are those of ``kafka-local`` and a `Writing`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return FILES_DDL

    def streamReader(self, schema: StructType) -> StreamReader:
        given = {name: value for name, value in self.options.items() if name.lower() != WRITING}
        options, writing = source_options(given, streaming=True), from_text(self.options[WRITING])
        columns = all_columns(options.include_headers)
        return StreamReader(options, columns, output=partial(_write, writing))


def _write(writing: Writing, records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the records of one task, and yield the names of the files; another attempt writes other files."""
    return files_to_arrow(write_files(writing, records))


Transform = Callable[["DataFrame"], "DataFrame"]
"""Transforms a stream's rows with Spark's functions: filters them, parses or drops columns."""


@attrs.frozen(kw_only=True)
class Target:
    """The table to write to.

    Attributes:
        table_format: ``parquet``, ``delta`` or ``iceberg``.
        place: a folder, or a URI in object storage.
        partition_by: columns whose values become folders; ``date`` is the day of ``timestamp`` in UTC.
        options: see `splashdam.pipeline.tables.open_table`.
    """

    table_format: str
    place: str | os.PathLike[str]
    partition_by: Sequence[str] = ()
    options: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    @property
    def output(self) -> TableOutput:
        """The table as an output of micro-batches."""
        return TableOutput(self.table_format, os.fspath(self.place), self.partition_by, self.options)

    def open(self, schema: object) -> Table:
        """Open the table for rows of an Arrow schema: create it, or add columns that it lacks."""
        return open_table(
            self.table_format, self.place, schema=schema, partition_by=self.partition_by, options=self.options
        )


@attrs.define
class IngestReport:
    """Totals of an ingest since it was started.

    Attributes:
        batches: micro-batches that were added to the table.
        records: records that were added.
        files: files that were added.
        batches_found: micro-batches that were in the table already: the last run ended between the table's
            commit and Spark's.
    """

    batches: int = 0
    records: int = 0
    files: int = 0
    batches_found: int = 0

    def add(self, batch: CommittedBatch) -> None:
        self.batches += batch.file_count > 0
        self.records += batch.record_count
        self.files += batch.file_count
        self.batches_found += batch.was_there


def ingest(
    spark: SparkSession,
    source: Mapping[str, str],
    target: Target,
    *,
    checkpoint: str | os.PathLike[str],
    transform: Transform | None = None,
    trigger_seconds: float | None = None,
    on_progress: OnProgress = lambda _: None,
) -> IngestReport:
    """Write the records of topics to a table, until those that exist now are in it, or for ever.

    Started again with the same checkpoint, it continues wherever it was killed: the table's own log has the
    micro-batches that are in the table.

    Args:
        spark: the session.
        source: options of ``kafka-local``; by default it begins at the earliest offsets.
        target: the table.
        checkpoint: where Spark keeps the query's progress; it belongs to this table.
        transform: transforms the rows; without it the table has Kafka's columns, and the ingest is faster.
        trigger_seconds: how often to look for new records, 0 for no pause; None to take what is there now and
            return.
        on_progress: called after each micro-batch.

    Raises:
        KafkaConfigurationError: an option is invalid, the table has other columns or partitions, or is new
            and the checkpoint is not, or ``trigger_seconds`` is less than a millisecond and not 0.
        StreamingQueryException: a micro-batch failed; start again to repeat it.
    """
    report = IngestReport()
    records: dict[int, int] = {}

    def count(batch: CommittedBatch) -> None:
        report.add(batch)
        records[batch.batch] = batch.record_count

    def tell(progress: BatchProgress) -> None:
        # Spark reports a batch after `count` was called for it.
        on_progress(_in_records(progress, records.pop(progress.batch, 0)))

    query = start_ingest(
        spark,
        source,
        target,
        checkpoint=checkpoint,
        transform=transform,
        trigger_seconds=trigger_seconds,
        on_commit=count,
    )
    follow(query, tell)
    return report


def _in_records(progress: BatchProgress, records: int) -> BatchProgress:
    """Replace Spark's counts, which may be of files, by counts of records."""
    each = records / progress.rows if progress.rows else 0
    return attrs.evolve(progress, rows=records, rows_per_second=progress.rows_per_second * each)


def start_ingest(
    spark: SparkSession,
    source: Mapping[str, str],
    target: Target,
    *,
    checkpoint: str | os.PathLike[str],
    transform: Transform | None = None,
    trigger_seconds: float | None = None,
    on_commit: OnCommit | None = None,
) -> StreamingQuery:
    """Start an ingest and return its query; arguments as for `ingest`.

    Args:
        on_commit: called when a micro-batch is in the table, in the query's thread.
    """
    place, interval = os.fspath(checkpoint), interval_of(trigger_seconds)
    need_table(place, target.output)
    options = {"startingOffsets": "earliest", "initialOffsetsLocation": f"{place}/initial-offsets", **source}
    if transform is None:
        writer = _files(spark, options, target, on_commit)
    else:
        rows = transform(spark.readStream.format("kafka-local").options(**options).load())
        writer = into_table(rows, target.open(table_schema(rows)), on_commit)
    return triggered(writer.option("checkpointLocation", place), interval).start()


def _files(
    spark: SparkSession, options: Mapping[str, str], target: Target, on_commit: OnCommit | None
) -> DataStreamWriter:
    from splashdam.pipeline.jobs.ingest import FORMAT, IngestSource
    from splashdam.pipeline.options import to_text
    from splashdam.pipeline.tables.streaming import WRITING

    table = target.open(all_columns(includes_headers(options)).arrow)
    spark.dataSource.register(IngestSource)
    given = {**options, WRITING: to_text(table.writing())}
    return files_into_table(spark.readStream.format(FORMAT).options(**given).load(), table, on_commit)
