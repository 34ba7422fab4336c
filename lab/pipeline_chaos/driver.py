"""The process that is killed: one Spark session, and an ingest into each table that it is told to fill.

It prints a line of JSON for each micro-batch that is in a table. On standard input come ``ingest FORMAT``,
which starts another ingest beside those that run, and ``die FORMAT``, which makes it end by SIGKILL after the
next commit to that table, before Spark hears of it. It does not outlive who started it.
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
"""Queries that may fail: each new Python process has ten seconds, which are few while a machine is busy."""
_LOOK_SECONDS = 0.2


class Commands:
    """What comes in on standard input.

    Attributes:
        wanted: tables that are to be filled.
    """

    def __init__(self) -> None:
        self.wanted: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._doomed = ""

    def listen(self) -> None:
        """Reads for as long as there is somebody who writes, and ends with them."""
        for line in sys.stdin:
            command, table_format = line.split()
            if command == "die":
                self._doomed = table_format
            else:
                self.wanted.put(table_format)
        os.kill(os.getpid(), signal.SIGKILL)

    def teller(self, table_format: str) -> OnCommit:
        """Tells of the commits to a table, or dies of one."""

        def tell(batch: CommittedBatch) -> None:
            if batch.file_count > 0 and self._doomed == table_format:
                os.kill(os.getpid(), signal.SIGKILL)
            line = {"format": table_format, "records": batch.record_count, "found": batch.was_there}
            os.write(1, json.dumps(line).encode() + b"\n")

        return tell


class Ingests:
    """The queries of the process; one that fails is started again, as operators would.

    Args:
        spark: the session.
        servers: of the cluster.
        folder: of tables and checkpoints.
        commands: who is told of commits.
    """

    def __init__(self, spark: SparkSession, servers: str, folder: Path, commands: Commands) -> None:
        self._spark, self._servers, self._folder, self._commands = spark, servers, folder, commands
        self._failures = 0

    def start(self, table_format: str, *, trigger_seconds: float | None) -> StreamingQuery:
        """Begins one, or goes on with it."""
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
        """Fills the tables that are wanted, for ever.

        Raises:
            StreamingQueryException: queries fail all the time.
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
        """Fills each table with all that is there.

        Raises:
            StreamingQueryException: queries fail all the time.
        """
        for table_format in FORMATS:
            while self._note_failure(self.start(table_format, trigger_seconds=None)):
                pass

    def _note_failure(self, query: StreamingQuery) -> bool:
        """Waits for the end of a query; whether it failed."""
        try:
            query.awaitTermination()
        except StreamingQueryException:
            self._failures += 1
            if self._failures > _PATIENCE:
                raise
            return True
        return False


def main() -> int:
    """Ingests into tables that it is told of, or with ``finish`` what is there into all."""
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
