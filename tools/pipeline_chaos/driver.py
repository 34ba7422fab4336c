"""The process that is killed: one Spark session, and an ingest into a table of each format.

It prints a line of JSON for each micro-batch that is in a table. The line ``die FORMAT`` on its standard
input makes it end by SIGKILL after the next commit to that table, before Spark hears of it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

from splashdam.pipeline.jobs.ingest import Target, start_ingest
from splashdam.pipeline.session import spark_session
from splashdam.pipeline.tables import FORMATS
from splashdam.pipeline.tables.streaming import CommittedBatch, OnCommit

TOPIC = "chaos"
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.log.level": "ERROR",
}


class Doomed:
    """The table after whose next commit the process is to die."""

    def __init__(self) -> None:
        self.table_format = ""
        self.told: set[str] = set()

    def listen(self) -> None:
        """Reads standard input for as long as it lasts."""
        for line in sys.stdin:
            self.table_format = line.split()[1]

    def teller(self, table_format: str) -> OnCommit:
        """Tells of the commits of a table, or dies of one."""

        def tell(batch: CommittedBatch) -> None:
            is_new = batch.file_count > 0
            if is_new and self.table_format == table_format:
                os.kill(os.getpid(), signal.SIGKILL)
            line = {"format": table_format, "records": batch.record_count, "found": batch.was_there}
            self.told.add(table_format)
            os.write(1, json.dumps(line).encode() + b"\n")

        return tell


def main() -> int:
    """Ingests for ever, or with ``finish`` what is there."""
    servers, folder, how = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    doomed = Doomed()
    threading.Thread(target=doomed.listen, daemon=True).start()
    spark = spark_session("pipeline-chaos", master="local[2,4]", memory="600m", settings=SETTINGS)
    source = {"kafka.bootstrap.servers": servers, "subscribe": TOPIC, "maxOffsetsPerTrigger": "20000"}
    queries = []
    for table_format in FORMATS:
        query = start_ingest(
            spark,
            source,
            Target(table_format=table_format, place=folder / table_format, partition_by=["date", "topic"]),
            checkpoint=folder / f"checkpoint-{table_format}",
            trigger_seconds=None if how == "finish" else 0,
            on_commit=doomed.teller(table_format),
        )
        # One after the other: Spark gives each new Python process ten seconds, and all begin with imports.
        while query.isActive and table_format not in doomed.told:
            query.awaitTermination(1)
        queries.append(query)
    if how != "finish":
        spark.streams.awaitAnyTermination()  # none ends unless it fails
    for query in queries:
        query.awaitTermination()
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
