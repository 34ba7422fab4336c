"""The writers that Spark calls; they delegate all work.

A batch job's writer is pickled from the planner to the tasks and to the driver's commit; a stream's is
created anew in each of these places. So writers hold only options, and everything else travels in the commit
messages."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import attrs
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.sink.options import DEDUP, EXACTLY_ONCE, SinkOptions, sink_options
from splashdam.pipeline.sink.rows import SinkColumns, sink_columns
from splashdam.pipeline.sink.tasks import TaskIdentity, batch_task, stream_task
from splashdam.pipeline.sink.transactional import TaskOutcome

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class SinkMessage(WriterCommitMessage):
    """A task's outcome as Spark's commit message."""

    def __init__(self, outcome: TaskOutcome) -> None:
        self.outcome = outcome


def batch_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> BatchWriter:
    """Return the writer of ``df.write.format("kafka-local")``.

    Args:
        schema: of the DataFrame.
        options: as Spark has them.
        overwrite: whether the save mode is ``overwrite``.

    Raises:
        KafkaConfigurationError: an option or a column is invalid, or the mode is not ``append``.
    """
    if overwrite:
        raise KafkaConfigurationError(
            'mode("overwrite") of a topic is refused: records cannot be taken back from their readers. Use'
            ' mode("append"); to begin anew, write to a new topic, or delete the old one before'
        )
    found = sink_options(options)
    if found.query is None:
        found = attrs.evolve(found, query=f"job-{uuid.uuid4().hex}")
    return BatchWriter(found, sink_columns(schema, found.topic))


def stream_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> StreamWriter:
    """Return the writer of ``df.writeStream.format("kafka-local")``.

    Args:
        schema: of the DataFrame.
        options: as Spark has them.
        overwrite: whether the output mode is ``complete``: then each batch is the whole result, and is sent
            whole.

    Raises:
        KafkaConfigurationError: an option or a column is invalid.
    """
    found = sink_options(options)
    return StreamWriter(found, sink_columns(schema, found.topic))


class BatchWriter(DataSourceArrowWriter):
    """The writer of a batch job."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkMessage:
        """Write the rows of a task."""
        options = self._options
        assert options.query is not None
        return _written(options, self._columns, batch_task(options.query, options.batch), iterator)

    def commit(self, messages: Iterable[WriterCommitMessage | None]) -> None:
        """Commit the batch: all tasks have written."""
        _commit(self._options, messages)

    def abort(self, messages: Iterable[WriterCommitMessage | None]) -> None:
        """Abort the batch: a task or ``commit`` failed."""
        _abort(self._options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of a stream's micro-batches."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkMessage:
        """Write the rows of a task."""
        return _written(self._options, self._columns, stream_task(), iterator)

    def commit(self, messages: Iterable[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the micro-batch, which the messages name: all tasks have written."""
        _commit(self._options, messages)

    def abort(self, messages: Iterable[WriterCommitMessage | None], batchId: int) -> None:
        """Abort the micro-batch: a task or ``commit`` failed."""
        _abort(self._options, messages)


def _written(
    options: SinkOptions, columns: SinkColumns, task: TaskIdentity, batches: Iterator[pa.RecordBatch]
) -> SinkMessage:
    from splashdam.pipeline.sink.rows import RowReader
    from splashdam.pipeline.sink.sending import CACHE, send_rows
    from splashdam.pipeline.sink.transactional import write_prepared

    reader = RowReader(columns, options, task if options.delivery == DEDUP else None)
    if options.delivery == EXACTLY_ONCE:
        return SinkMessage(write_prepared(options, task, reader, batches))
    with CACHE.producer(options) as producer:
        return SinkMessage(TaskOutcome(task, send_rows(producer, reader, batches)))


def _commit(options: SinkOptions, messages: Iterable[WriterCommitMessage | None]) -> None:
    if options.delivery == EXACTLY_ONCE:
        from splashdam.pipeline.sink.committing import commit_batch

        commit_batch(options, _outcomes(messages))


def _abort(options: SinkOptions, messages: Iterable[WriterCommitMessage | None]) -> None:
    if options.delivery == EXACTLY_ONCE:
        from splashdam.pipeline.sink.committing import abort_batch

        abort_batch(options, _outcomes(messages))


def _outcomes(messages: Iterable[WriterCommitMessage | None]) -> list[TaskOutcome | None]:
    return [message.outcome if isinstance(message, SinkMessage) else None for message in messages]
