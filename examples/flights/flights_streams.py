"""The two streams of the main pipeline: flights into a Delta table, and hourly delays onto a board."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flights_live import TOPIC, WATERMARK_DAYS, Sending

if TYPE_CHECKING:
    from flights_delays import Board
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from rich.progress import Progress, TaskID

TRIGGER_SECONDS = 2
_RESTARTS = 5
_CAME_TOO_LATE = "worker failed to connect back"
"""Part of Spark's error if a Python process has not started within ten seconds. No setting changes this
limit, and a busy machine may need more."""


class Live:
    """The two streams. They are started one after the other; the constructor returns when both read.

    Args:
        spark: the session.
        folder: for the table and the checkpoints.
        bootstrap_servers: of the broker.
        board: filled by the second stream.

    Raises:
        StreamingQueryException: a stream failed.
    """

    def __init__(self, spark: SparkSession, folder: Path, bootstrap_servers: str, board: Board) -> None:
        self.in_table = 0
        self._board = board
        self._restarts = _RESTARTS
        source = {
            "kafka.bootstrap.servers": bootstrap_servers,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
        }
        self._starts: list[Callable[[], StreamingQuery]] = [
            partial(self._table, spark, folder, source),
            partial(self._delays, spark, folder, source),
        ]
        self.queries: list[StreamingQuery] = []
        try:
            for number, start in enumerate(self._starts):
                self.queries.append(start())
                while self._runs(number) and not _reads(self.queries[number]):
                    pass
        except BaseException:
            self.stop()
            raise

    def _table(self, spark: SparkSession, folder: Path, source: dict[str, str]) -> StreamingQuery:
        from splashdam.pipeline.jobs.ingest import Target, start_ingest
        from splashdam.pipeline.tables.streaming import CommittedBatch

        def committed(batch: CommittedBatch) -> None:
            self.in_table += batch.record_count

        return start_ingest(
            spark,
            source,
            Target(table_format="delta", place=str(folder / "table")),
            checkpoint=str(folder / "table-checkpoint"),
            trigger_seconds=TRIGGER_SECONDS,
            on_commit=committed,
        )

    def _delays(self, spark: SparkSession, folder: Path, source: dict[str, str]) -> StreamingQuery:
        from flights_delays import hourly

        checkpoint = folder / "delays-checkpoint"
        options = {**source, "initialOffsetsLocation": f"{checkpoint}/initial-offsets"}
        rows = spark.readStream.format("kafka-local").options(**options).load()
        return (
            hourly(rows, WATERMARK_DAYS)
            .writeStream.outputMode("update")
            .foreachBatch(self._board.update)
            .option("checkpointLocation", str(checkpoint))
            .trigger(processingTime=f"{TRIGGER_SECONDS} seconds")
            .start()
        )

    def wait(self, sending: Sending, limit: int, progress: Progress, bars: list[TaskID]) -> None:
        """Wait until all flights are sent, in the table and on the board.

        Args:
            sending: sends the flights.
            limit: number of flights.
            progress: shows the progress of table and board.
            bars: the bar of the table, and the bar of the board.

        Raises:
            Exception: the error that ended the sending.
            StreamingQueryException: a stream failed.
        """
        while not (sending.is_over and self.in_table >= limit and self._board.scheduled >= limit):
            if sending.failure is not None:
                raise sending.failure
            if not all(self._runs(number) for number in range(len(self.queries))):
                return  # the audit will say what is missing
            progress.update(bars[0], completed=self.in_table)
            progress.update(bars[1], completed=self._board.scheduled)

    def _runs(self, number: int) -> bool:
        """Wait a second, and return whether a query runs.

        A query whose worker started too late is started again, and continues from its checkpoint.
        """
        from pyspark.errors import StreamingQueryException

        try:
            return not self.queries[number].awaitTermination(1)
        except StreamingQueryException as error:
            if self._restarts == 0 or _CAME_TOO_LATE not in str(error):
                raise
            self._restarts -= 1
            self.queries[number] = self._starts[number]()
            return True

    def stop(self) -> None:
        """Stop the queries; ignore a JVM that has died, perhaps by the signal that ends this program."""
        for query in self.queries:
            with suppress(Exception):
                query.stop()


def _reads(query: StreamingQuery) -> bool:
    """Return whether the source of a query has answered once."""
    return not str(query.status["message"]).startswith("Initializing")
