"""Spark and a table: tasks write the files of a batch, the driver commits them to the table.

Only the names of files leave a task, so that rows cross from Spark to Python once and never come back.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from splashdam.model.errors import IllegalArgumentError, IllegalStateError, KafkaError
from splashdam.pipeline.failures import cause_in, is_of_spark
from splashdam.pipeline.options import from_text, to_text
from splashdam.pipeline.tables.table import Table, plain_schema
from splashdam.pipeline.tables.writing import DataFile, Writing, files_from_rows, write_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

QUERY_ID = "sql.streaming.queryId"
"""Spark's local property of the thread that runs a micro-batch; the id stays the same with the checkpoint."""


@attrs.frozen
class CommittedBatch:
    """A micro-batch that is in the table.

    Attributes:
        query: Spark's id of the query.
        batch: its number, from 0.
        record_count: rows that were added; 0 if the batch was in the table already.
        file_count: files that were added.
        was_there: whether the batch was in the table already: the query died between the table's commit and
            Spark's.
    """

    query: str
    batch: int
    record_count: int = 0
    file_count: int = 0
    was_there: bool = False


OnCommit = Callable[[CommittedBatch], None]


def table_schema(rows: DataFrame) -> pa.Schema:
    """Return the table schema for the rows of a DataFrame."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return plain_schema(
        to_arrow_schema(rows.schema, timezone="UTC", error_on_duplicated_field_names_in_struct=True)
    )


def into_table(rows: DataFrame, table: Table, on_commit: OnCommit | None = None) -> DataStreamWriter:
    """Return a query that appends the rows of a stream to a table, each micro-batch exactly once.

    Set a checkpoint and a trigger, and start it. Table and checkpoint belong together: with a new checkpoint
    Spark makes a new query, whose batches are not in the table's log.

    Args:
        rows: a stream with the table's columns, or a part of them.
        table: opened for these rows; do not use it otherwise while the query runs.
        on_commit: called in the driver after each batch.
    """
    rows.sparkSession.dataSource.register(FilesSink)
    writing = table.writing()
    return _appending(rows, table, lambda batch: write_rows(batch, writing), on_commit)


def files_into_table(files: DataFrame, table: Table, on_commit: OnCommit | None = None) -> DataStreamWriter:
    """As ``into_table``, for a stream whose source has written the files: its rows have `FILES_SCHEMA`."""
    return _appending(files, table, lambda batch: files_from_rows(batch.collect()), on_commit)


Write = Callable[["DataFrame"], list[DataFile]]


def _appending(rows: DataFrame, table: Table, write: Write, on_commit: OnCommit | None) -> DataStreamWriter:
    def append(batch_rows: DataFrame, batch: int) -> None:
        done = append_batch(batch_rows, batch, table, write)
        if on_commit is not None:
            on_commit(done)

    return rows.writeStream.foreachBatch(append)


def append_batch(rows: DataFrame, batch: int, table: Table, write: Write) -> CommittedBatch:
    """Write and commit a micro-batch, unless the table has it already.

    Args:
        rows: of the batch.
        batch: its number.
        table: to append to.
        write: runs the tasks, and returns the files of the attempts that Spark accepted.

    Raises:
        IllegalStateError: the caller is not inside a streaming query.
        TableConflictError: other writers changed the table at every attempt.
    """
    query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if query is None:
        raise IllegalStateError("a micro-batch is committed inside foreachBatch: here is no streaming query")
    # Only saves work: `commit` looks again, because another driver may write the same batch.
    if table.is_committed(query, batch):
        return CommittedBatch(query, batch, was_there=True)
    with short_failures(batch):
        files = write(rows)
    # False for a batch without files, too, which nobody else can have committed.
    if not table.commit(query, batch, files) and files:
        return CommittedBatch(query, batch, was_there=True)
    return CommittedBatch(query, batch, sum(file.record_count for file in files), len(files))


@contextmanager
def short_failures(batch: int) -> Iterator[None]:
    """Replace long errors of Spark by short ones.

    Spark searches what a batch raises for an interrupt, with a regular expression that overflows the stack on
    long texts. The query's thread then dies silently, as if the query had ended well.
    """
    try:
        yield
    except Exception as error:
        if not is_of_spark(error):
            raise
        text = str(error)
        if "java.lang.InterruptedException" in text:
            raise MicroBatchError(_STOPPED) from None
        raise MicroBatchError(f"batch {batch} could not be written: {cause_in(text)}") from None


_STOPPED = "py4j.protocol.Py4JJavaError: An error occurred while calling stop: java.lang.InterruptedException"
"""By this text Spark recognizes that a query was stopped and did not fail."""


class MicroBatchError(KafkaError):
    """The tasks of a micro-batch failed; none of its rows are in the table."""

    remedy = "fix the cause in the message and start again: the query continues with this batch"


FORMAT = "splashdam-files"
"""Internal: tables are written through ``splashdam.pipeline.tables.streaming``."""
WRITING = "secret.writing"
"""The value may contain keys of object storage; Spark redacts options with ``secret`` in their names."""
HAND_OVER = "handOver"


@attrs.frozen
class FilesWritten(WriterCommitMessage):
    """The files that a task wrote, as Spark's commit message."""

    files: tuple[DataFile, ...]


class FilesSink(DataSource):
    """An internal sink whose tasks write Parquet files, and that commits nothing; see ``write_rows``.

    Spark's ``mapInArrow`` would do the same, but needs pandas.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> FilesWriter:
        if overwrite:
            raise IllegalArgumentError(f"{FORMAT} appends")
        return FilesWriter(from_text(self.options[WRITING]), self.options[HAND_OVER])


@attrs.frozen
class FilesWriter(DataSourceArrowWriter):
    """Tasks write files; the driver writes their descriptions to one local file, which the program reads.

    Attributes:
        writing: how and where tasks write.
        hand_over: that file, on the driver's machine.
    """

    writing: Writing
    hand_over: str

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        """Write one task's rows; another attempt writes other files."""
        return FilesWritten(tuple(write_files(self.writing, iterator)))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write the descriptions of the files of the attempts that Spark accepted."""
        files = [file for message in messages if isinstance(message, FilesWritten) for file in message.files]
        with open(self.hand_over, "w", encoding="utf-8") as file:
            json.dump([attrs.astuple(each, recurse=False) for each in files], file)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: no table refers to the files, and ``remove_orphans`` finds them."""


def write_rows(rows: DataFrame, writing: Writing) -> list[DataFile]:
    """Write the rows of a batch, and return the files of the attempts that Spark accepted.

    `FilesSink` must be registered in the session.
    """
    descriptor, hand_over = tempfile.mkstemp(prefix="splashdam-files-", suffix=".json")
    os.close(descriptor)
    options = {WRITING: to_text(writing), HAND_OVER: hand_over}
    try:
        # Spark runs the writer's `commit` in another process of the driver's machine, hence the file.
        rows.write.format(FORMAT).options(**options).mode("append").save()
        with open(hand_over, encoding="utf-8") as file:
            rows_of_files = json.load(file)
    finally:
        os.unlink(hand_over)
    return files_from_rows([(*row[:3], json.dumps(row[3]), row[4]) for row in rows_of_files])
