"""``window``: aggregates over event time, and a side table for rows that arrive too late.

Spark's own stateful aggregation drops late rows and reports only their number. So the windows are kept here:
each micro-batch yields partial aggregates, which are merged with those of the open windows, and a window that
the watermark has passed is written once and dropped.

The state between two batches is the watermark and the open windows. Beside the checkpoint there are, for each
batch N, ``state-N/`` (Parquet: the partial aggregates of open windows) and ``N.json``, which records that the
batch is finished. The state of the previous batch is kept, so that a batch can be repeated; older ones are
deleted."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import attrs

from splashdam.model.errors import IllegalStateError, KafkaConfigurationError
from splashdam.pipeline.jobs.checkpoint_files import names_in
from splashdam.pipeline.jobs.continuing import is_used, need_tables_with_rows, noted
from splashdam.pipeline.jobs.micro_batches import Batch, Running, held, run_batches
from splashdam.pipeline.jobs.outputs import Output
from splashdam.pipeline.jobs.window_expressions import need_expressions
from splashdam.pipeline.jobs.window_query import (
    MISSED,
    START_US,
    TIME_US,
    WINDOWS,
    WindowQuery,
    merged,
    parts,
    placed,
    results,
    side_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType


class HadoopFolder:
    """A folder, accessed through Spark's Hadoop filesystems.

    Args:
        spark: the session.
        place: path or URI, as Spark takes them.
    """

    def __init__(self, spark: SparkSession, place: str) -> None:
        jvm: Any = spark._jvm
        self._paths = jvm.org.apache.hadoop.fs.Path
        self._root = self._paths(place)
        java_context: Any = spark.sparkContext._jsc
        self._files = self._root.getFileSystem(java_context.hadoopConfiguration())

    def address(self, name: str) -> str:
        """Return an entry's path or URI, as Spark takes it."""
        return str(self._paths(self._root, name).toString())

    def names(self) -> list[str]:
        """Return the names of the folder's entries; none if it does not exist."""
        if not self._files.exists(self._root):
            return []
        return [status.getPath().getName() for status in self._files.listStatus(self._root)]

    def read(self, name: str) -> str:
        """Return a file's text."""
        stream = self._files.open(self._paths(self._root, name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a new file atomically; an existing file is kept.

        Raises:
            OSError: the filesystem refused it.
        """
        beside = self._paths(self._root, f".{name}.tmp")
        stream = self._files.create(beside, True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        place = self._paths(self._root, name)
        # Hadoop's filesystems return False instead of raising
        if not self._files.rename(beside, place) and not self._files.exists(place):
            raise OSError(f"{place.toString()} could not be written: the rename to it was refused")

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with its contents."""
        self._files.delete(self._paths(self._root, name), True)


def numbered(names: list[str], pattern: str) -> list[int]:
    """Return the numbers in the names that match: ``numbered(names, r"(\\d+)\\.json")``; ascending."""
    return sorted(int(found[1]) for name in names if (found := re.fullmatch(pattern, name)) is not None)


FOLDER = "splashdam-window"
_DONE = r"(\d+)\.json"


@attrs.frozen
class Finished:
    """The record of a finished batch.

    Attributes:
        watermark_us: microseconds since the epoch; windows that end at or before it are closed. None before
            the first row with an event time.
        query: the stream's id.
        shape: sizes, keys and aggregates of the query. A query of another shape cannot use the state.
    """

    watermark_us: int | None
    query: str
    shape: str


class WindowState:
    """The state of one query, batch by batch.

    Args:
        spark: the session.
        checkpoint: of the query.
        shape: see `Finished`.
    """

    def __init__(self, spark: SparkSession, checkpoint: str, shape: str) -> None:
        self._folder = HadoopFolder(spark, f"{checkpoint}/{FOLDER}")
        self._shape = shape

    def last(self) -> int:
        """Return the last finished batch, -1 before the first."""
        return max(numbered(self._folder.names(), _DONE), default=-1)

    def finished(self, batch: int) -> Finished | None:
        """Return the record of a batch, None if it is not finished.

        Raises:
            IllegalStateError: the state belongs to another query.
        """
        if f"{batch}.json" not in self._folder.names():
            return None
        found = Finished(**json.loads(self._folder.read(f"{batch}.json")))
        if found.shape != self._shape:
            raise IllegalStateError(
                "the checkpoint belongs to other windows, keys or aggregates: use a new one. It has"
                f" {found.shape}, and this query {self._shape}"
            )
        closed = self._closed_until_us(batch)
        if closed is None or (found.watermark_us is not None and found.watermark_us >= closed):
            return found
        return attrs.evolve(found, watermark_us=closed)

    def watermark_before_us(self, batch: int) -> int | None:
        """Return the watermark after the previous batch.

        Raises:
            IllegalStateError: the state of that batch is missing.
        """
        if batch == 0:
            return None
        found = self.finished(batch - 1)
        if found is None:
            raise IllegalStateError(
                f"the state of batch {batch - 1} is missing beside the checkpoint, in"
                f" {self._folder.address('')}: start with a new checkpoint"
            )
        return found.watermark_us

    def open_windows(self, batch: int, schema: StructType, spark: SparkSession) -> DataFrame:
        """Return the windows that were open after a batch; none after -1, or if all windows were closed.

        Args:
            batch: its number.
            schema: of the partial aggregates.
            spark: the session to read with: a micro-batch has one of its own.
        """
        names = self._folder.names()
        if f"state-{batch}" not in names or f"{batch}.closed" in names:
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).parquet(self._folder.address(f"state-{batch}"))

    def keep(self, batch: int, windows: DataFrame) -> None:
        """Write the open windows after a batch, over the leftovers of an earlier attempt."""
        windows.write.mode("overwrite").parquet(self._folder.address(f"state-{batch}"))

    def finish(self, batch: int, watermark_us: int | None, query: str) -> None:
        """Record that a batch is finished, and delete the state of all but the previous batch."""
        done = Finished(watermark_us, query, self._shape)
        self._folder.write(f"{batch}.json", json.dumps(attrs.asdict(done)))
        names = self._folder.names()
        for number in numbered(names, _DONE):
            if number < batch - 1:
                # The record of the batch last: it is what finds the others again after a crash.
                for name in (f"{number}.closing", f"{number}.closed", f"state-{number}", f"{number}.json"):
                    if name in names:
                        self._folder.remove(name)

    def begin_closing(self, batch: int) -> None:
        """Record that the windows after a batch are being closed, before any of them is written."""
        self._folder.write(f"{batch}.closing", "")

    def is_closing(self, batch: int) -> bool:
        """Whether closing was begun and not finished."""
        names = self._folder.names()
        return f"{batch}.closing" in names and f"{batch}.closed" not in names

    def end_closing(self, batch: int, until_us: int) -> None:
        """Record that closing is finished: the watermark is now at the end of the last window."""
        self._folder.write(f"{batch}.closed", str(until_us))

    def _closed_until_us(self, batch: int) -> int | None:
        name = f"{batch}.closed"
        return int(self._folder.read(name)) if name in self._folder.names() else None


@attrs.define
class WindowReport:
    """Totals of a run of ``window``; batches that an earlier run finished are not counted again.

    Attributes:
        batches: batches with rows.
        records: records that were read.
        late: records that belong to a closed window.
        without_time: records without an event time.
        windows: rows of the result that were written, one for each window and key.
        watermark_us: after the last batch, microseconds since the epoch; None before the first event time.
    """

    batches: int = 0
    records: int = 0
    late: int = 0
    without_time: int = 0
    windows: int = 0
    watermark_us: int | None = None


CLOSED, LATE = "windows", "late"
"""Names of the notes of the two outputs."""


def need_windows(checkpoint: str, output: Output, side: Output) -> None:
    """Refuse tables that would lack rows which the checkpoint's query has written already.

    Raises:
        KafkaConfigurationError: there is one, or the query has kept no windows.
    """
    need_tables_with_rows(checkpoint, {CLOSED: output, LATE: side})
    if is_used(checkpoint) and not numbered(list(names_in(checkpoint, FOLDER)), _DONE):
        raise KafkaConfigurationError(
            f"checkpoint {checkpoint} is of a query that has run, and keeps no windows: give another one"
        )


def window(
    source: DataFrame,
    query: WindowQuery,
    output: Output,
    side: Output,
    running: Running,
    *,
    close_all: bool = False,
) -> WindowReport:
    """Aggregate rows by windows of their event time.

    A row belongs to each window that contains its event time. Windows that end at or before the watermark
    after the previous batch are closed: a row of such a window is late, and goes to the side table with the
    windows that it missed; in its other windows it counts. After a batch the watermark is the latest event
    time so far minus the delay, and never goes back; windows that end at or before it are written and closed.
    So each pair of row and window is in the result or in the side table, once. A row without an event time
    goes to the side table. Outputs and state know the batch, so a batch that is repeated after a crash of the
    driver changes nothing.

    Of a batch DataFrame all windows are written, and no row is late.

    Args:
        source: batch or stream; any columns.
        query: what is computed.
        output: of closed windows: ``window_start``, ``window_end``, keys and aggregates.
        side: output of late rows, unchanged, with ``reason`` and ``missed_windows``.
        running: checkpoint, name and interval. The open windows are kept beside the checkpoint.
        close_all: write the open windows, too, when the stream has ended. Otherwise they are written when
            later rows advance the watermark. Rows of these windows that arrive afterwards are late.

    Raises:
        IllegalStateError: the checkpoint belongs to another query.
        KafkaConfigurationError: a stream has no checkpoint, or one that a new table would lack rows by; or
            see `need_expressions`.
        KafkaError: raised by an output.
    """
    need_expressions(source, query)
    if source.isStreaming and running.checkpoint is not None:
        need_windows(running.checkpoint, output, side)
        output, side = noted(output, running.checkpoint, CLOSED), noted(side, running.checkpoint, LATE)
    job = _Job(query, output, side)
    if not source.isStreaming:
        run_batches(source, job.only, running)
        return job.report
    state = None
    if running.checkpoint is not None:
        state = job.state = WindowState(source.sparkSession, running.checkpoint, query.shape)
        job.schema_of(source)
    run_batches(source, job.step, running)
    if close_all and state is not None and state.last() >= 0:
        job.close_all(state.last(), source.sparkSession)
    return job.report


class _Job:
    """One run of ``window``."""

    def __init__(self, query: WindowQuery, output: Output, side: Output) -> None:
        self._query = query
        self._output = output
        self._side = side
        self.state: WindowState | None = None
        self._parts: DataFrame | None = None
        self.report = WindowReport()

    def schema_of(self, source: DataFrame) -> None:
        """Determine the columns of partial aggregates before the stream starts."""
        empty = source.sparkSession.createDataFrame([], source.schema)
        self._parts = parts(placed(empty, self._query, None), self._query)

    def only(self, batch: Batch) -> int:
        """Process a batch DataFrame: no row is late, and all windows are written."""
        with held(placed(batch.rows, self._query, None)) as rows:
            count = self._count(rows)
            self._write_side(rows, count, batch)
            self._write(merged(parts(rows, self._query), self._query), batch.query, batch.number)
        return int(count["records"])

    def step(self, batch: Batch) -> int:
        """One micro-batch."""
        state = self._state()
        if state.finished(batch.number) is not None:
            return 0  # the driver died between our commit and Spark's
        # Some of the windows may be in the output already, so they must not be merged with this batch's rows.
        if batch.number > 0 and state.is_closing(batch.number - 1):
            self.close_all(batch.number - 1, batch.rows.sparkSession)
        before = state.watermark_before_us(batch.number)
        with held(placed(batch.rows, self._query, before)) as rows:
            count = self._count(rows)
            after = _later(before, count["youngest_us"], self._query.delay_ms)
            # All outputs before `finish`: a crash in between repeats the batch, which the outputs recognize.
            self._write_side(rows, count, batch)
            made = parts(rows, self._query)
            opened = state.open_windows(batch.number - 1, made.schema, made.sparkSession)
            with held(merged(made.unionByName(opened), self._query)) as windows:
                end = f"{START_US} + {self._query.size_ms * 1000}L"
                if after is not None:
                    self._write(windows.where(f"{end} <= {after}L"), batch.query, batch.number)
                # It counts only with the batch's record, which `finish` writes.
                state.keep(batch.number, windows if after is None else windows.where(f"{end} > {after}L"))
        state.finish(batch.number, after, batch.query)
        self.report.watermark_us = after
        return int(count["records"])

    def close_all(self, batch: int, spark: SparkSession) -> None:
        """Write the windows that are open after a batch; it takes effect once, however often it is begun."""
        state = self._state()
        done = state.finished(batch)
        assert done is not None, "called after a finished batch only"
        assert self._parts is not None, "set by schema_of"
        with held(state.open_windows(batch, self._parts.schema, spark)) as windows:
            latest = windows.agg({START_US: "max"}).first()
            if latest is None or latest[0] is None:
                return
            # From here on a crash may leave some windows in the output: the next batch closes the rest first.
            state.begin_closing(batch)
            # Under another name: the output may have this batch already, and would take these windows for it.
            self._write(windows, f"{done.query}-closed", batch)
        until = latest[0] + self._query.size_ms * 1000
        state.end_closing(batch, until)
        self.report.watermark_us = until

    def _state(self) -> WindowState:
        assert self.state is not None, "a stream has one"
        return self.state

    def _count(self, rows: DataFrame) -> Row:
        found = rows.selectExpr(
            "count(*) AS records",
            f"max({TIME_US}) AS youngest_us",
            f"count_if({TIME_US} IS NULL) AS without_time",
            f"count_if(size({MISSED}) > 0) AS late",
            f"count_if(size({WINDOWS}) > size({MISSED})) AS on_time",
        ).first()
        assert found is not None, "an aggregate has one row"
        self.report.batches += found["records"] > 0
        self.report.records += found["records"]
        self.report.late += found["late"]
        self.report.without_time += found["without_time"]
        return found

    def _write_side(self, rows: DataFrame, count: Row, batch: Batch) -> None:
        if count["late"] or count["without_time"]:
            self._side.write(side_rows(rows), f"{batch.query}-late", batch.number)

    def _write(self, windows: DataFrame, query: str, batch: int) -> None:
        count = windows.count()
        if count:
            self._output.write(results(windows, self._query), query, batch)
            self.report.windows += count


def _later(before_us: int | None, youngest_us: int | None, delay_ms: int) -> int | None:
    """Return the watermark after a batch."""
    if youngest_us is None:
        return before_us
    now = youngest_us - delay_ms * 1000
    return now if before_us is None else max(before_us, now)
