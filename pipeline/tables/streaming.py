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
"""Spark's property of the thread that runs a micro-batch: the same for as long as the checkpoint is."""


@attrs.frozen
class CommittedBatch:
    """What became of a micro-batch.

    Attributes:
        query: Spark's id of the query.
        batch: its number, from 0.
        record_count: rows that are new in the table; 0 where the batch was there already.
        file_count: files that are new in the table.
        was_there: whether the table had it: the query died between the table's commit and Spark's.
    """

    query: str
    batch: int
    record_count: int = 0
    file_count: int = 0
    was_there: bool = False


OnCommit = Callable[[CommittedBatch], None]


def table_schema(rows: DataFrame) -> pa.Schema:
    """Rows of a DataFrame as columns of a table."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return plain_schema(
        to_arrow_schema(rows.schema, timezone="UTC", error_on_duplicated_field_names_in_struct=True)
    )


def into_table(rows: DataFrame, table: Table, on_commit: OnCommit | None = None) -> DataStreamWriter:
    """A query that appends the rows of a stream to a table, each micro-batch exactly once.

    Give it a checkpoint and a trigger, and start it. Table and checkpoint belong together: with a new
    checkpoint Spark makes a new query, whose batches the table does not know.

    Args:
        rows: a stream; its columns are those of the table, or some of them.
        table: opened for these rows; nothing else may be done with it while the query runs.
        on_commit: called in the driver after each batch.
    """
    rows.sparkSession.dataSource.register(FilesSink)
    writing = table.writing()
    return _appending(rows, table, lambda batch: write_rows(batch, writing), on_commit)


def files_into_table(files: DataFrame, table: Table, on_commit: OnCommit | None = None) -> DataStreamWriter:
    """As ``into_table``, for a stream whose source has written files: its rows are `FILES_SCHEMA`'s."""
    return _appending(files, table, lambda batch: files_from_rows(batch.collect()), on_commit)


Write = Callable[["DataFrame"], list[DataFile]]


def _appending(rows: DataFrame, table: Table, write: Write, on_commit: OnCommit | None) -> DataStreamWriter:
    def append(batch_rows: DataFrame, batch: int) -> None:
        done = append_batch(batch_rows, batch, table, write)
        if on_commit is not None:
            on_commit(done)

    return rows.writeStream.foreachBatch(append)


def append_batch(rows: DataFrame, batch: int, table: Table, write: Write) -> CommittedBatch:
    """Write and commits a micro-batch, unless the table has it: then nothing is written.

    Args:
        rows: of the batch.
        batch: its number.
        table: where to.
        write: has the tasks write, and says which files those that won have written.

    Raises:
        IllegalStateError: there is no query whose batch it could be.
        TableConflictError: others change the table all the time.
    """
    query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if query is None:
        raise IllegalStateError("a micro-batch is committed inside foreachBatch: here is no streaming query")
    if table.is_committed(query, batch):
        return CommittedBatch(query, batch, was_there=True)
    with short_failures(batch):
        files = write(rows)
    table.commit(query, batch, files)
    return CommittedBatch(query, batch, sum(file.record_count for file in files), len(files))


@contextmanager
def short_failures(batch: int) -> Iterator[None]:
    """Spark looks for an interrupt in what a batch raises, with an expression that overflows on long texts.

    The query's thread then dies without a word, as if the query had ended well.
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
"""By these words Spark knows that a query was stopped, and did not fail."""


class MicroBatchError(KafkaError):
    """The tasks of a micro-batch failed; nothing of it is in the table."""

    remedy = "mend what the message names and start again: the query goes on with this batch"


FORMAT = "splashdam-files"
"""Internal: tables are written through ``splashdam.pipeline.tables.streaming``."""
WRITING = "secret.writing"
"""Keys of object storage may be in it, and Spark hides options whose names say so."""
HAND_OVER = "handOver"


@attrs.frozen
class FilesWritten(WriterCommitMessage):
    """What a task wrote."""

    files: tuple[DataFile, ...]


class FilesSink(DataSource):
    """The sink; see ``write_rows``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> FilesWriter:
        if overwrite:
            raise IllegalArgumentError(f"{FORMAT} appends")
        return FilesWriter(from_text(self.options[WRITING]), self.options[HAND_OVER])


@attrs.frozen
class FilesWriter(DataSourceArrowWriter):
    """Tasks write files; the driver side writes their names into one file, for the program to read.

    Attributes:
        writing: how and where.
        hand_over: a file on the driver's machine.
    """

    writing: Writing
    hand_over: str

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        """One task's rows; another attempt of it writes other files."""
        return FilesWritten(tuple(write_files(self.writing, iterator)))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Name the files of the attempts that won."""
        files = [file for message in messages if isinstance(message, FilesWritten) for file in message.files]
        with open(self.hand_over, "w", encoding="utf-8") as file:
            json.dump([attrs.astuple(each, recurse=False) for each in files], file)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave the files: no table names them, and ``remove_orphans`` finds them."""


def write_rows(rows: DataFrame, writing: Writing) -> list[DataFile]:
    """Write the rows of a batch, and says what the attempts that won wrote.

    The session must know `FilesSink`.
    """
    descriptor, hand_over = tempfile.mkstemp(prefix="splashdam-files-", suffix=".json")
    os.close(descriptor)
    options = {WRITING: to_text(writing), HAND_OVER: hand_over}
    try:
        rows.write.format(FORMAT).options(**options).mode("append").save()
        with open(hand_over, encoding="utf-8") as file:
            rows_of_files = json.load(file)
    finally:
        os.unlink(hand_over)
    return files_from_rows([(*row[:3], json.dumps(row[3]), row[4]) for row in rows_of_files])
