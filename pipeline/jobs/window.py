"""``window``: aggregates over event time, and a side table for the rows that come too late.

Spark's own stateful aggregation drops late rows and says how many, never which. So the windows are kept here:
each micro-batch makes parts of aggregates, which are put together with those of the windows that are open,
and a window that the watermark has passed is written once and forgotten.

What ``window`` knows between two batches: the watermark, and the windows that are still open. Beside the
checkpoint stand, for each batch N, ``state-N/`` (Parquet: the parts of open windows), and ``N.json``, which
says that the batch was finished and how. The state of the batch before is kept, so that a batch can be
repeated; older ones are deleted.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import attrs

from splashdam.model.errors import IllegalStateError
from splashdam.pipeline.jobs.micro_batches import Batch, Running, held, run_batches
from splashdam.pipeline.jobs.outputs import Output
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
    """A folder, through Spark's own filesystems.

    Args:
        spark: the session.
        place: path or address, as Spark takes them.
    """

    def __init__(self, spark: SparkSession, place: str) -> None:
        jvm: Any = spark._jvm
        self._paths = jvm.org.apache.hadoop.fs.Path
        self._root = self._paths(place)
        java_context: Any = spark.sparkContext._jsc
        self._files = self._root.getFileSystem(java_context.hadoopConfiguration())

    def address(self, name: str) -> str:
        """Of what lies in the folder, as Spark takes it."""
        return str(self._paths(self._root, name).toString())

    def names(self) -> list[str]:
        """Of all that lies in the folder; none where it is not there."""
        if not self._files.exists(self._root):
            return []
        return [status.getPath().getName() for status in self._files.listStatus(self._root)]

    def read(self, name: str) -> str:
        """A file's text."""
        stream = self._files.open(self._paths(self._root, name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """A new file, whole or not at all; where it is there already, it stays.

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
        # Hadoop's filesystems say so, and raise nothing
        if not self._files.rename(beside, place) and not self._files.exists(place):
            raise OSError(f"{place.toString()} could not be written: renaming it into its place was refused")

    def remove(self, name: str) -> None:
        """A file, or a folder and what is in it."""
        self._files.delete(self._paths(self._root, name), True)


def numbered(names: list[str], pattern: str) -> list[int]:
    """The numbers in those names that fit: ``numbered(names, r"(\\d+)\\.json")``; ascending."""
    return sorted(int(found[1]) for name in names if (found := re.fullmatch(pattern, name)) is not None)


FOLDER = "splashdam-window"
_DONE = r"(\d+)\.json"


@attrs.frozen
class Finished:
    """How a batch ended.

    Attributes:
        watermark_us: microseconds since the epoch; windows that end at or before it are closed. None before
            the first row with an event time.
        query: whose batch it was.
        shape: of the query: sizes, keys and aggregates. Another query cannot go on with the state.
    """

    watermark_us: int | None
    query: str
    shape: str


class WindowState:
    """The states of one query.

    Args:
        spark: the session.
        checkpoint: of the query.
        shape: see ``Finished``.
    """

    def __init__(self, spark: SparkSession, checkpoint: str, shape: str) -> None:
        self._folder = HadoopFolder(spark, f"{checkpoint}/{FOLDER}")
        self._shape = shape

    def last(self) -> int:
        """The last batch that was finished, -1 before the first."""
        return max(numbered(self._folder.names(), _DONE), default=-1)

    def finished(self, batch: int) -> Finished | None:
        """How a batch ended; None if it did not, and for the batch before the first.

        Raises:
            IllegalStateError: it was of another query.
        """
        if f"{batch}.json" not in self._folder.names():
            return None
        found = Finished(**json.loads(self._folder.read(f"{batch}.json")))
        if found.shape != self._shape:
            raise IllegalStateError(
                "the checkpoint is of other windows, keys or aggregates: take a new one. It has"
                f" {found.shape}, and this query {self._shape}"
            )
        closed = self._closed_until_us(batch)
        if closed is None or (found.watermark_us is not None and found.watermark_us >= closed):
            return found
        return attrs.evolve(found, watermark_us=closed)

    def watermark_before_us(self, batch: int) -> int | None:
        """The watermark that the batch before left.

        Raises:
            IllegalStateError: nobody knows.
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
        """What was open behind a batch; nothing behind -1, nor where all windows were closed.

        Args:
            batch: its number.
            schema: of the parts.
            spark: the session to read with: a micro-batch has one of its own.
        """
        names = self._folder.names()
        if f"state-{batch}" not in names or f"{batch}.closed" in names:
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).parquet(self._folder.address(f"state-{batch}"))

    def keep(self, batch: int, windows: DataFrame) -> None:
        """Write the open windows behind a batch, over what an attempt may have left."""
        windows.write.mode("overwrite").parquet(self._folder.address(f"state-{batch}"))

    def finish(self, batch: int, watermark_us: int | None, query: str) -> None:
        """Say that a batch is finished, and forgets what stood before the batch before it."""
        done = Finished(watermark_us, query, self._shape)
        self._folder.write(f"{batch}.json", json.dumps(attrs.asdict(done)))
        names = self._folder.names()
        for number in numbered(names, _DONE):
            if number < batch - 1:
                for name in (f"{number}.json", f"{number}.closing", f"{number}.closed", f"state-{number}"):
                    if name in names:
                        self._folder.remove(name)

    def begin_closing(self, batch: int) -> None:
        """Say that the windows behind a batch are being closed, before any of them is written."""
        self._folder.write(f"{batch}.closing", "")

    def is_closing(self, batch: int) -> bool:
        """Whether that was begun, and not done."""
        names = self._folder.names()
        return f"{batch}.closing" in names and f"{batch}.closed" not in names

    def end_closing(self, batch: int, until_us: int) -> None:
        """Say that it was done: the watermark is now at the end of the last of these windows."""
        self._folder.write(f"{batch}.closed", str(until_us))

    def _closed_until_us(self, batch: int) -> int | None:
        name = f"{batch}.closed"
        return int(self._folder.read(name)) if name in self._folder.names() else None


@attrs.define
class WindowReport:
    """What a run of ``window`` did; a batch that was finished by an earlier run is not counted again.

    Attributes:
        batches: with rows in them.
        records: all that were read.
        late: those that a window was closed for.
        without_time: those without an event time.
        windows: rows of the result, one for each window and key, that were written.
        watermark_us: microseconds since the epoch, behind the last batch; None before the first event time.
    """

    batches: int = 0
    records: int = 0
    late: int = 0
    without_time: int = 0
    windows: int = 0
    watermark_us: int | None = None


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

    Batch by batch: a row belongs to each window that its event time is in. Windows that end at or before the
    watermark that the batches before have left are closed: a row of such a window is late, and goes to the
    side table with the windows it is missing in; in its other windows it counts. Behind the batch the
    watermark is the youngest event time so far less the delay, and never goes back; windows that end at or
    before it are written and closed. So each row and window meet once: in the result, or in the side table. A
    row without an event time goes to the side table. Outputs and state know the batch, so that one that is
    repeated, because the driver died, changes nothing.

    Of a batch DataFrame all windows are written, and no row is late.

    Args:
        source: batch or stream; any columns.
        query: what is computed.
        output: where closed windows go: ``window_start``, ``window_end``, keys and aggregates.
        side: where late rows go: as they were, with ``reason`` and ``missed_windows``.
        running: checkpoint, name, and how often. The open windows stand beside the checkpoint.
        close_all: whether, when the stream has ended, the windows that are open are written, too. Without it
            they are when time goes on, which needs younger rows. A row of them that still comes is late.

    Raises:
        IllegalStateError: the checkpoint is of another query.
        KafkaConfigurationError: a stream has no checkpoint.
        KafkaError: an output's.
    """
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
    """One run."""

    def __init__(self, query: WindowQuery, output: Output, side: Output) -> None:
        self._query = query
        self._output = output
        self._side = side
        self.state: WindowState | None = None
        self._parts: DataFrame | None = None
        self.report = WindowReport()

    def schema_of(self, source: DataFrame) -> None:
        """Learn the columns of parts, and that all expressions are right, before the stream starts."""
        empty = source.sparkSession.createDataFrame([], source.schema)
        self._parts = parts(placed(empty, self._query, None), self._query)

    def only(self, batch: Batch) -> int:
        """All there is: no row is late, and all windows end."""
        with held(placed(batch.rows, self._query, None)) as rows:
            count = self._count(rows)
            self._write_side(rows, count, batch)
            self._write(merged(parts(rows, self._query), self._query), batch.query, batch.number)
        return int(count["records"])

    def step(self, batch: Batch) -> int:
        """One micro-batch."""
        state = self._state()
        if state.finished(batch.number) is not None:
            return 0  # the driver died between our word and Spark's
        if batch.number > 0 and state.is_closing(batch.number - 1):
            self.close_all(batch.number - 1, batch.rows.sparkSession)
        before = state.watermark_before_us(batch.number)
        with held(placed(batch.rows, self._query, before)) as rows:
            count = self._count(rows)
            after = _later(before, count["youngest_us"], self._query.delay_ms)
            self._write_side(rows, count, batch)
            made = parts(rows, self._query)
            opened = state.open_windows(batch.number - 1, made.schema, made.sparkSession)
            with held(merged(made.unionByName(opened), self._query)) as windows:
                end = f"{START_US} + {self._query.size_ms * 1000}L"
                if after is not None:
                    self._write(windows.where(f"{end} <= {after}L"), batch.query, batch.number)
                state.keep(batch.number, windows if after is None else windows.where(f"{end} > {after}L"))
        state.finish(batch.number, after, batch.query)
        self.report.watermark_us = after
        return int(count["records"])

    def close_all(self, batch: int, spark: SparkSession) -> None:
        """Write the windows that are open behind a batch; done at most once, however often it is begun."""
        state = self._state()
        done = state.finished(batch)
        assert done is not None, "only a finished batch is followed by this"
        assert self._parts is not None, "learnt at the start"
        with held(state.open_windows(batch, self._parts.schema, spark)) as windows:
            latest = windows.agg({START_US: "max"}).first()
            if latest is None or latest[0] is None:
                return
            state.begin_closing(batch)
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
    """The watermark behind a batch."""
    if youngest_us is None:
        return before_us
    now = youngest_us - delay_ms * 1000
    return now if before_us is None else max(before_us, now)
