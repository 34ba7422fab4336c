"""The table of the pipeline's comparisons: a row for each scenario, a function for each contender."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from spark.json_rows import Damage, decoded_in, with_syntax_error, with_wrong_type
from spark.topics import PARTITIONS, Broker, Topic, segments
from splashdam.cli.measuring.scenarios import Contender, Scenario
from splashdam.testing.topics import create_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOCAL, LOG, THEIRS = "kafka-local", "kafka-log", "kafka"
LARGE_FETCHES = {"kafka.max.poll.records": "20000", "kafka.max.partition.fetch.bytes": str(8 << 20)}
"""Settings that make Kafka's consumer as fast as possible; splashdam fetches 8 MiB by default."""
CHUNK_BYTES = 1024 * 1024
"""Bytes for the decoder at a time, as many as a fetch brings."""


@attrs.frozen
class Laboratory:
    """The surroundings of every measurement.

    Attributes:
        spark: the session.
        broker: with the topics.
        topics: by the size of their values.
        scratch: a directory that is empty when a measurement begins.
    """

    spark: SparkSession
    broker: Broker
    topics: dict[int, Topic]
    scratch: Path


Seconds = float
Call = Callable[[Laboratory, Topic], Seconds]


def timed(work: Callable[[], object]) -> Seconds:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def read(lab: Laboratory, topic: Topic, word: str, **options: str) -> DataFrame:
    """Return the topic as a batch DataFrame."""
    reader = lab.spark.read.format(word).options(**options)
    if word == LOG:
        return reader.option("path", str(lab.broker.data)).option("subscribe", topic.name).load()
    return reader.option("kafka.bootstrap.servers", lab.broker.servers).option("subscribe", topic.name).load()


def to_nothing(word: str, **options: str) -> Call:
    """Read a source into Spark's ``noop`` sink, which drops every row: the cost of reading alone."""

    def run(lab: Laboratory, topic: Topic) -> Seconds:
        frame = read(lab, topic, word, **options)
        return timed(frame.write.format("noop").mode("overwrite").save)

    return run


def to_files(word: str, **options: str) -> Call:
    """Stream a topic into Spark's own Parquet sink, which keeps a log of its commits."""

    def run(lab: Laboratory, topic: Topic) -> Seconds:
        source = lab.spark.readStream.format(word).option("kafka.bootstrap.servers", lab.broker.servers)
        frame = (
            source.option("subscribe", topic.name)
            .option("startingOffsets", "earliest")
            .options(**options)
            .load()
        )
        writer = frame.writeStream.format("parquet").option("path", str(lab.scratch / "table"))
        writer = writer.option("checkpointLocation", str(lab.scratch / "checkpoint"))

        def work() -> None:
            writer.trigger(availableNow=True).start().awaitTermination()

        seconds = timed(work)
        check(rows_of(lab.scratch / "table"), topic.records)
        return seconds

    return run


def ingested(lab: Laboratory, topic: Topic) -> Seconds:
    """Run ``splashdam pipeline ingest`` into a Parquet table: each task writes the records it fetches."""
    from splashdam.pipeline.jobs.ingest import Target, ingest

    source = {"kafka.bootstrap.servers": lab.broker.servers, "subscribe": topic.name}
    target = Target(table_format="parquet", place=lab.scratch / "table")
    seconds = timed(lambda: ingest(lab.spark, source, target, checkpoint=lab.scratch / "checkpoint"))
    check(rows_of(lab.scratch / "table"), topic.records)
    return seconds


def into_topic(word: str, **options: str) -> Call:
    """Write rows that Spark makes into a topic."""

    def run(lab: Laboratory, topic: Topic) -> Seconds:
        name = f"written-{time.monotonic_ns()}"
        create_topic(lab.broker.servers, name, partitions=PARTITIONS)
        filler = "x" * (topic.size - 20)
        frame = lab.spark.range(topic.records).selectExpr(
            f"CAST(concat(lpad(CAST(id AS string), 20, '0'), '{filler}') AS binary) AS value"
        )
        writer = frame.write.format(word).mode("append").option("topic", name).options(**options)
        seconds = timed(writer.option("kafka.bootstrap.servers", lab.broker.servers).save)
        written = read(lab, attrs.evolve(topic, name=name), word).count()
        check(written, topic.records)
        return seconds

    return run


def decode(lab: Laboratory, topic: Topic) -> Seconds:
    """Decode segment files, already in memory, into Arrow's record batches, in this process without Spark."""
    from splashdam.model.values import TopicPartition
    from splashdam.pipeline.decoding import RecordDecoder
    from splashdam.pipeline.schema import all_columns

    seconds, rows = 0.0, 0
    for path in segments(lab.broker.data, topic):
        name, _, number = path.parent.name.rpartition("-")
        decoder = RecordDecoder(
            TopicPartition(name, int(number)),
            all_columns(include_headers=False),
            first_offset=int(path.stem),
            end_offset=topic.records,
            read_committed=True,
        )
        data = path.read_bytes()
        began = time.perf_counter()
        for chunk in whole_batches(data):
            rows += sum(batch.num_rows for batch in decoder.feed(chunk))
        rows += sum(batch.num_rows for batch in decoder.finish())
        seconds += time.perf_counter() - began
    check(rows, topic.records)
    return seconds


def json_values(damage: Damage | None) -> Call:
    """Decode JSON values into columns, in this process without Spark."""
    return lambda _, topic: decoded_in(topic.records, topic.size, damage)


def whole_batches(data: bytes) -> list[memoryview]:
    """Cut segment data into pieces that end where a batch ends, as fetches would bring them."""
    from splashdam.record.stored import iter_stored_headers

    starts = [start for start, _ in iter_stored_headers(data)]
    cuts = [0]
    for start in starts:
        if start - cuts[-1] >= CHUNK_BYTES:
            cuts.append(start)
    view = memoryview(data)
    return [view[first:end] for first, end in zip(cuts, [*cuts[1:], len(data)], strict=True)]


def rows_of(table: Path) -> int:
    """Return the number of rows of all Parquet files below a directory, by their footers."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in table.rglob("*.parquet"))


def check(found: int, expected: int) -> None:
    """End the program if a measurement has lost or duplicated a record."""
    if found != expected:
        raise SystemExit(f"found {found:,} rows, expected {expected:,}")


CALLS: dict[str, Call] = {
    "decode": decode,
    "json": json_values(None),
    "json, bad syntax": json_values(with_syntax_error),
    "json, wrong types": json_values(with_wrong_type),
    "log to nothing": to_nothing(LOG),
    "local to nothing": to_nothing(LOCAL),
    "theirs to nothing": to_nothing(THEIRS),
    "ingested": ingested,
    "theirs to nothing, tuned": to_nothing(THEIRS, **LARGE_FETCHES),
    "local to files": to_files(LOCAL),
    "theirs to files": to_files(THEIRS),
    "theirs to files, tuned": to_files(THEIRS, **LARGE_FETCHES),
    "into a topic": into_topic(LOCAL),
    "into a topic, dedup": into_topic(LOCAL, delivery="dedup"),
    "into a topic, exactly once": into_topic(LOCAL, delivery="exactly_once"),
    "theirs into a topic": into_topic(THEIRS),
}


def _ours(label: str, call: str) -> Contender:
    return Contender(label, "splashdam", call, 0)


def _theirs(label: str, call: str) -> Contender:
    return Contender(label, "spark-sql-kafka", call, 0)


DECODE = _ours("decoder", "decode")
GOOD_JSON = _ours("good rows", "json")
BAD_SYNTAX = _ours("1 % with a syntax error", "json, bad syntax")
WRONG_TYPES = _ours("1 % with a wrong type", "json, wrong types")
LOG_READ = _ours("kafka-log", "log to nothing")
LOCAL_READ = _ours("kafka-local", "local to nothing")
THEIR_READ = _theirs("Spark's kafka", "theirs to nothing")
INGEST = _ours("splashdam pipeline ingest", "ingested")
LOCAL_FILES = _ours("kafka-local", "local to files")
THEIR_TUNED_READ = _theirs("Spark's kafka, tuned", "theirs to nothing, tuned")
THEIR_TUNED_FILES = _theirs("Spark's kafka, tuned", "theirs to files, tuned")
THEIR_FILES = _theirs("Spark's kafka", "theirs to files")
WRITE = _ours("kafka-local", "into a topic")
WRITE_DEDUP = _ours("kafka-local, dedup", "into a topic, dedup")
WRITE_ONCE = _ours("kafka-local, exactly_once", "into a topic, exactly once")
THEIR_WRITE = _theirs("Spark's kafka", "theirs into a topic")


def _sized(name: str, title: str, contenders: tuple[Contender, ...], note: str = "") -> list[Scenario]:
    return [
        Scenario(name=f"{name}-100", title=f"{title}, 100 B", contenders=contenders, size=100, note=note),
        Scenario(name=f"{name}-1k", title=f"{title}, 1 KB", contenders=contenders, size=1000, note=note),
    ]


SCENARIOS = (
    *_sized("decode", "decoding alone", (DECODE,), "one process on one core, no Spark; bytes in memory"),
    *_sized(
        "json",
        "JSON values to columns, as pipeline decode does",
        (GOOD_JSON, BAD_SYNTAX, WRONG_TYPES),
        "one process on one core, no Spark; bytes in memory; CPU time includes making them",
    ),
    *_sized(
        "read", "reading, all columns, into nothing", (LOCAL_READ, LOG_READ, THEIR_READ, THEIR_TUNED_READ)
    ),
    *_sized(
        "ingest",
        "a topic into Parquet, as a stream",
        (INGEST, LOCAL_FILES, THEIR_FILES, THEIR_TUNED_FILES),
        "tuned: 8 MiB from a partition at once, 20,000 records from a poll",
    ),
    *_sized("write", "a frame into a topic", (WRITE, WRITE_DEDUP, WRITE_ONCE, THEIR_WRITE)),
)
