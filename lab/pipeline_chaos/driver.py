"""The process that is killed: one Spark session, with an ingest into each wanted table.

It prints a line of JSON for each micro-batch that it commits to a table. On standard input it takes ``ingest
FORMAT``, which starts an ingest beside those that run, and ``die FORMAT``: it then kills itself after the
next commit to that table, before Spark's own commit. It ends when its standard input ends.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from splashdam.pipeline.jobs.ingest import Target, start_ingest
from splashdam.pipeline.session import spark_session
from splashdam.pipeline.tables import FORMATS
from splashdam.pipeline.tables.streaming import CommittedBatch, OnCommit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TOPIC = "chaos"
FINISH = "finish"
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.log.level": "ERROR",
    "spark.python.authenticate.socketTimeout": "120s",
}
_PATIENCE = 10
"""Number of queries that may fail: Spark gives a new Python process ten seconds, often too few."""
_LOOK_SECONDS = 0.2


class Commands:
    """The commands from standard input.

    Attributes:
        wanted: formats of the tables to fill.
    """

    def __init__(self) -> None:
        self.wanted: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._doomed = ""

    def listen(self) -> None:
        """Read commands until standard input ends, and end the process then."""
        for line in sys.stdin:
            command, table_format = line.split()
            if command == "die":
                self._doomed = table_format
            else:
                self.wanted.put(table_format)
        os.kill(os.getpid(), signal.SIGKILL)

    def teller(self, table_format: str) -> OnCommit:
        """Return a callback that prints the commits to a table, and kills the process if ``die`` named it."""

        def tell(batch: CommittedBatch) -> None:
            if batch.file_count > 0 and self._doomed == table_format:
                os.kill(os.getpid(), signal.SIGKILL)
            line = {"format": table_format, "records": batch.record_count, "found": batch.was_there}
            os.write(1, json.dumps(line).encode() + b"\n")

        return tell


class Ingests:
    """The queries of the process; a failed one is started again, as an operator would do.

    Args:
        spark: the session.
        servers: addresses of the cluster.
        folder: of tables and checkpoints.
        commands: prints commits.
    """

    def __init__(self, spark: SparkSession, servers: str, folder: Path, commands: Commands) -> None:
        self._spark, self._servers, self._folder, self._commands = spark, servers, folder, commands
        self._failures = 0

    def start(self, table_format: str, *, trigger_seconds: float | None) -> StreamingQuery:
        """Start a query; it continues from its checkpoint."""
        return start_ingest(
            self._spark,
            {
                "kafka.bootstrap.servers": self._servers,
                "subscribe": TOPIC,
                "maxOffsetsPerTrigger": "20000",
            },
            Target(
                table_format=table_format,
                place=self._folder / table_format,
                partition_by=["date", "topic"],
            ),
            checkpoint=self._folder / f"checkpoint-{table_format}",
            trigger_seconds=trigger_seconds,
            on_commit=self._commands.teller(table_format),
        )

    def run(self) -> None:
        """Fill the wanted tables, for ever.

        Raises:
            StreamingQueryException: more than `_PATIENCE` queries failed.
        """
        running: dict[str, StreamingQuery] = {}
        while True:
            for table_format, query in running.items():
                if not query.isActive:
                    self._note_failure(query)
                    running[table_format] = self.start(table_format, trigger_seconds=0)
            try:
                wanted = self._commands.wanted.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                continue
            if wanted not in running:
                running[wanted] = self.start(wanted, trigger_seconds=0)

    def finish(self) -> None:
        """Fill each table with all records of the topic.

        Raises:
            StreamingQueryException: more than `_PATIENCE` queries failed.
        """
        for table_format in FORMATS:
            while self._note_failure(self.start(table_format, trigger_seconds=None)):
                pass

    def _note_failure(self, query: StreamingQuery) -> bool:
        """Wait for the end of a query, and return whether it failed."""
        try:
            query.awaitTermination()
        except StreamingQueryException:
            self._failures += 1
            if self._failures > _PATIENCE:
                raise
            return True
        return False


def main() -> int:
    """Ingest into the wanted tables for ever; with ``finish`` fill all tables, and end."""
    servers, folder, how = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    commands = Commands()
    threading.Thread(target=commands.listen, daemon=True).start()
    spark = spark_session("pipeline-chaos", master="local[2,4]", memory="600m", settings=SETTINGS)
    ingests = Ingests(spark, servers, folder, commands)
    if how == FINISH:
        ingests.finish()
    else:
        commands.wanted.put(how)
        ingests.run()
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
