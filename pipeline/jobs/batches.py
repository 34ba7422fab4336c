"""A pipeline's turns: a batch DataFrame is one turn, a stream has one for each micro-batch."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.jobs.progress import BatchProgress, OnProgress, StreamTotals, follow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@attrs.frozen
class Batch:
    """One turn.

    Attributes:
        query: who makes it: the stream's id, which its checkpoint keeps, or the name of a batch job.
        number: which of the query's batches, from 0; the same when a batch is repeated.
        rows: a batch DataFrame; the same rows when a batch is repeated.
    """

    query: str
    number: int
    rows: DataFrame


Step = Callable[[Batch], int]
"""Does one turn and returns its rows. It is called again for a batch that it did not finish, or finished
while the driver died, so all its effects must be such that the second time changes nothing."""


@attrs.frozen
class Running:
    """How a pipeline runs.

    Attributes:
        checkpoint: folder in which a stream keeps how far it came; a stream needs one.
        query: name of a batch job. A job that is started again under the same name writes nothing twice; None
            for a name that nobody had before.
        interval_ms: a stream looks for new records this often, until it is stopped; None: it reads what is
            there and ends.
        on_progress: is told of each batch.
    """

    checkpoint: str | None = None
    query: str | None = None
    interval_ms: int | None = None
    on_progress: OnProgress = lambda _: None


def run_batches(source: DataFrame, step: Step, running: Running) -> StreamTotals:
    """Calls ``step`` for each batch, until the stream ends or is stopped.

    Raises:
        KafkaConfigurationError: a stream has no checkpoint.
        KafkaError: the step's own.
        StreamingQueryException: the source failed.
    """
    if not source.isStreaming:
        return _once(source, step, running)
    if running.checkpoint is None:
        raise KafkaConfigurationError("a stream needs a checkpoint: the folder that says how far it came")
    failures: list[Exception] = []

    def turn(rows: DataFrame, number: int) -> None:
        with _kept(failures, number):
            step(Batch(_query_of(rows), number, rows))

    writer = _triggered(source.writeStream.foreachBatch(turn), running.interval_ms)
    query = writer.option("checkpointLocation", running.checkpoint).start()
    try:
        return follow(query, running.on_progress)
    except Exception as error:
        if failures:
            raise failures[0] from error
        raise


def _once(source: DataFrame, step: Step, running: Running) -> StreamTotals:
    name = running.query or f"job-{uuid.uuid4().hex}"
    progress = BatchProgress(0, step(Batch(name, 0, source)))
    totals = StreamTotals()
    totals.add(progress)
    running.on_progress(progress)
    return totals


def _triggered(writer: DataStreamWriter, interval_ms: int | None) -> DataStreamWriter:
    if interval_ms is None:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{interval_ms} milliseconds")


def _query_of(rows: DataFrame) -> str:
    from splashdam.pipeline.tables.streaming import QUERY_ID

    query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    assert query is not None, "a micro-batch belongs to a query"
    return str(query)


@contextmanager
def _kept(failures: list[Exception], number: int) -> Iterator[None]:
    """Keeps what a turn raises, which Spark hands on as text alone."""
    from splashdam.pipeline.tables.streaming import short_failures

    try:
        with short_failures(number):
            yield
    except Exception as error:
        failures.append(error)
        raise


@contextmanager
def held(rows: DataFrame) -> Iterator[DataFrame]:
    """The rows, computed once for everything that is done with them inside; in memory, and on disk where that
    is full."""
    from pyspark import StorageLevel

    kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield kept
    finally:
        kept.unpersist()
