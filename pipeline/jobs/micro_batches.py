"""A pipeline's batches, and their progress while the caller waits.

A batch DataFrame is one batch, a stream has one for each of Spark's micro-batches.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import attrs

from splashdam.model.errors import KafkaConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@attrs.frozen
class Batch:
    """One batch of a pipeline.

    Attributes:
        query: the stream's id, which its checkpoint keeps, or the name of a batch job.
        number: of the batch within the query, from 0; the same when a batch is repeated.
        rows: a batch DataFrame; the same rows when a batch is repeated.
    """

    query: str
    number: int
    rows: DataFrame


Step = Callable[[Batch], int]
"""Processes a batch and returns its number of rows. It is called again for a batch that it did not finish, or
that it finished before the driver died, so it must be idempotent."""


@attrs.frozen
class Running:
    """How a pipeline runs.

    Attributes:
        checkpoint: folder in which a stream keeps its progress; required for a stream.
        query: name of a batch job. A job that is started again under the same name writes nothing twice; None
            for a new unique name.
        interval_ms: how often a stream looks for new records until it is stopped; None to read what is there
            and end.
        on_progress: called after each batch.
    """

    checkpoint: str | None = None
    query: str | None = None
    interval_ms: int | None = None
    on_progress: OnProgress = lambda _: None


def run_batches(source: DataFrame, step: Step, running: Running) -> StreamTotals:
    """Call ``step`` for each batch, until the stream ends or is stopped.

    Raises:
        KafkaConfigurationError: a stream has no checkpoint.
        KafkaError: raised by ``step``.
        StreamingQueryException: the source failed.
    """
    if not source.isStreaming:
        return _once(source, step, running)
    if running.checkpoint is None:
        raise KafkaConfigurationError("a stream needs a checkpoint: a folder in which it keeps its progress")
    failures: list[Exception] = []

    def turn(rows: DataFrame, number: int) -> None:
        with _kept(failures, number):
            step(Batch(_query_of(rows), number, rows))

    writer = triggered(source.writeStream.foreachBatch(turn), running.interval_ms)
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


def triggered(writer: DataStreamWriter, interval_ms: int | None) -> DataStreamWriter:
    """Return the query with its trigger; see `Running.interval_ms`."""
    if interval_ms is None:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{interval_ms} milliseconds")


def interval_of(seconds: float | None) -> int | None:
    """Return an interval in milliseconds, as `Running` and ``triggered`` take it; None without one.

    Raises:
        KafkaConfigurationError: it is above 0 and below a millisecond, negative, or no number.
    """
    if seconds is None:
        return None
    if not 0 <= seconds < math.inf:
        raise KafkaConfigurationError(f"an interval is a number of seconds, 0 for no pause, not {seconds!r}")
    if 0 < seconds < 0.001:
        raise KafkaConfigurationError(
            f"an interval of {seconds:g} s is below Spark's shortest, a millisecond: give 0.001 or more, or "
            "0 for no pause"
        )
    return round(seconds * 1000)


def _query_of(rows: DataFrame) -> str:
    from splashdam.pipeline.tables.streaming import QUERY_ID

    query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    assert query is not None, "a micro-batch belongs to a query"
    return str(query)


@contextmanager
def _kept(failures: list[Exception], number: int) -> Iterator[None]:
    """Keep the exception that a batch raises, because Spark passes on only its text."""
    from splashdam.pipeline.tables.streaming import short_failures

    try:
        with short_failures(number):
            yield
    except Exception as error:
        failures.append(error)
        raise


@contextmanager
def held(rows: DataFrame) -> Iterator[DataFrame]:
    """Persist rows for the block, so that they are computed once; in memory, and on disk if that is full."""
    from pyspark import StorageLevel

    kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield kept
    finally:
        kept.unpersist()


POLL_SECONDS = 1
"""How often a running query is polled for progress; its end is noticed at once."""


@attrs.frozen
class BatchProgress:
    """One finished micro-batch.

    Attributes:
        batch: Spark's batch id, from 0.
        rows: number of rows that it read.
        rows_per_second: by Spark's clock.
        lag: for each topic, the offsets after the batch when it was planned. Empty if the source does not
            report them.
    """

    batch: int
    rows: int
    rows_per_second: float = 0.0
    lag: Mapping[str, int] = attrs.field(factory=dict)


OnProgress = Callable[[BatchProgress], None]
"""Called with each micro-batch, in the thread that waits for the query."""


@attrs.define
class StreamTotals:
    """Totals of a query since it was started.

    Attributes:
        batches: micro-batches with rows in them.
        rows: rows in all.
        last_batch: number of the last one, -1 before the first.
    """

    batches: int = 0
    rows: int = 0
    last_batch: int = -1

    def add(self, progress: BatchProgress) -> bool:
        """Count a batch unless it was counted already; return whether it was new."""
        if progress.batch <= self.last_batch:
            return False
        self.last_batch = progress.batch
        self.rows += progress.rows
        self.batches += progress.rows > 0
        return True


def read_progress(reported: Mapping[str, Any]) -> BatchProgress:
    """Convert an entry of ``StreamingQuery.recentProgress``, as JSON."""
    lag: dict[str, int] = {}
    for source in reported.get("sources", ()):
        for topic, behind in _lag(source).items():
            lag[topic] = lag.get(topic, 0) + behind
    return BatchProgress(
        batch=int(reported["batchId"]),
        rows=int(reported.get("numInputRows", 0)),
        rows_per_second=float(reported.get("processedRowsPerSecond") or 0.0),
        lag=lag,
    )


def follow(
    query: StreamingQuery,
    on_progress: OnProgress = lambda _: None,
    *,
    poll_seconds: int = POLL_SECONDS,
) -> StreamTotals:
    """Wait until a query ends, as one with ``availableNow`` does by itself, and report each batch.

    Args:
        query: started by the caller.
        on_progress: called once for each batch, in order.
        poll_seconds: how often the query is polled.

    Raises:
        StreamingQueryException: the query failed.
        KeyboardInterrupt: Ctrl-C; the query has been stopped. The next start continues at its checkpoint.
    """
    totals = StreamTotals()
    try:
        while not query.awaitTermination(poll_seconds):
            _tell(query, totals, on_progress)
        _tell(query, totals, on_progress)
    except KeyboardInterrupt:
        with suppress(Exception):  # Ctrl-C reaches the whole process group, so the JVM may be gone already
            query.stop()
        raise
    return totals


def _tell(query: StreamingQuery, totals: StreamTotals, on_progress: OnProgress) -> None:
    for reported in query.recentProgress:
        progress = read_progress(json.loads(reported.json))
        if totals.add(progress):
            on_progress(progress)


def _lag(source: Mapping[str, Any]) -> dict[str, int]:
    """Return the lag by topic; sources with other offsets than Kafka's have none."""
    ends, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    return {
        topic: sum(
            max(0, offset - ends.get(topic, {}).get(number, 0)) for number, offset in partitions.items()
        )
        for topic, partitions in latest.items()
        if topic in ends
    }


def _offsets(reported: object) -> dict[str, dict[str, int]]:
    """Parse ``{"topic": {"0": 123}}``, which Spark reports as JSON or as a string with JSON."""
    if isinstance(reported, str):
        try:
            reported = json.loads(reported)
        except ValueError:
            return {}
    if not isinstance(reported, dict):
        return {}
    return {
        topic: partitions
        for topic, partitions in reported.items()
        if isinstance(partitions, dict) and all(isinstance(offset, int) for offset in partitions.values())
    }
