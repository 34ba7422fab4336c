"""Reads one large partition with little memory: ``python benchmarks/pipeline_memory.py --gib 4``.

Reads the partition through `kafka-local` and `kafka-log` into nothing, with the address space of every Python
worker limited to `--limit-mib` (``spark.executor.pyspark.memory``, which sets ``RLIMIT_AS``: a larger
allocation fails), and prints the largest resident memory that a worker has had.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import checked
from spark.processes import peak_of_workers
from spark.scenarios import LOCAL, LOG, check
from spark.topics import Broker, Topic, broker, fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES = 2
VALUE_BYTES = 1000
_LOOK_SECONDS = 0.2


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gib", type=float, default=4.0, help="size of the partition (4)")
    parser.add_argument("--limit-mib", type=int, default=512, help="limit of each worker; 0 for none (512)")
    parser.add_argument(
        "--data", type=checked.folder, help="where the broker writes; by default the temporary folder"
    )
    return parser.parse_args(argv)


@contextmanager
def session(limit_mib: int) -> Iterator[SparkSession]:
    """Open a Spark session with two Python workers, each limited to ``limit_mib``."""
    from splashdam.pipeline import spark_session

    # Arrow's default allocator would reserve a GiB of addresses at its start, of which it uses little.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    # In local mode Spark divides this setting by one core, whatever CORES is.
    settings = {"spark.executor.pyspark.memory": f"{limit_mib}m"} if limit_mib else {}
    spark = spark_session("memory", master=f"local[{CORES}]", memory="2g", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


class Watch:
    """Polls the workers' memory, because a worker that has ended has no figures."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._done.wait(_LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        self.peak_bytes = max(self.peak_bytes, peak_of_workers(os.getpid()))

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()


def frame(spark: SparkSession, running: Broker, topic: Topic, word: str) -> DataFrame:
    """Return the partition as a DataFrame."""
    reader = spark.read.format(word).option("subscribe", topic.name)
    if word == LOG:
        return reader.option("path", str(running.data)).load()
    return reader.option("kafka.bootstrap.servers", running.servers).load()


def measure(rows: DataFrame, word: str, topic: Topic) -> None:
    """Read the partition once for the time, and once more to count its records."""
    tasks = rows.rdd.getNumPartitions()
    with Watch() as watch:
        began = time.perf_counter()
        rows.write.format("noop").mode("overwrite").save()
        seconds = time.perf_counter() - began
    check(rows.count(), topic.records)
    print(
        f"{word}: {topic.records:,} records of {topic.size} B in {tasks} tasks,"
        f" {topic.records / seconds:,.0f} records/s; a worker had {watch.peak_bytes / 2**20:,.0f} MiB at most"
    )


def main() -> int:
    arguments = parse_arguments()
    records = int(arguments.gib * 2**30 / VALUE_BYTES)
    topic = Topic("large", VALUE_BYTES, records, partitions=1)
    with (
        tempfile.TemporaryDirectory(prefix="splashdam-bench-", dir=arguments.data) as made,
        broker(Path(made)) as running,
        session(arguments.limit_mib) as spark,
    ):
        fill(running.servers, topic)
        for word in (LOCAL, LOG):
            measure(frame(spark, running, topic, word), word, topic)
    return 0


if __name__ == "__main__":
    sys.exit(main())
