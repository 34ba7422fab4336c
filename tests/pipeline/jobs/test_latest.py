"""``latest``: what compaction would leave, of a batch and of a stream."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.pipeline.pipeline_job_kit import Row, Source
from support.storage.compacted_logs import clean, compacted_log, put, roll
from support.storage.logs import read_all

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.jobs.latest import LatestReport, latest, latest_into, latest_into_delta
from splashdam.pipeline.jobs.micro_batches import Running
from splashdam.pipeline.jobs.outputs import TableOutput
from splashdam.storage.files.memory import MemoryFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Newest = set[tuple[int, bytes, bytes | None]]


def newest(rows: DataFrame) -> Newest:
    """Offsets, keys and values."""
    return {(row.offset, bytes(row.key), bytes(row.value)) for row in rows.collect()}


@pytest.mark.spark
def test_compaction(spark: SparkSession, tmp_path: Path) -> None:
    """``latest`` of a log equals the log after the broker's cleaner."""
    drawn = random.Random(7)
    files = MemoryFiles()
    log = compacted_log(files)
    for _ in range(40):
        pairs = [(drawn.choice([b"", b"a", b"b", b"c", b"\xff"]), drawn.choice([None, b"", b"x"]))]
        put(log, *pairs, (b"key-%d" % drawn.randrange(30), b"v%d" % drawn.randrange(9)))
    roll(log)
    source = Source(tmp_path / "in")
    source.add([Row(record.value, record.key) for record in read_all(log)])
    clean(files, log)
    left = {(record.offset, record.key, record.value) for record in read_all(log) if record.value is not None}
    assert newest(latest(source.batch(spark))) == left
    assert len(left) < 40


@pytest.mark.spark
def test_stream(spark: SparkSession, tmp_path: Path) -> None:
    """A table that follows a stream ends as a batch does; partitions do not mix, null keys stay out."""
    pytest.importorskip("deltalake", reason="needs splashdam[delta]")
    from splashdam.pipeline.tables.opening import existing_table

    source = Source(tmp_path / "in")
    source.add([Row(b"1", b"a"), Row(b"2", b"b"), Row(b"3", b"a"), Row(b"no key")])
    source.add([Row(None, b"a"), Row(b"5", b"b", partition=1), Row(b"6", b"c"), Row(None, b"never")])
    running = Running(str(tmp_path / "checkpoint"))
    report = latest_into_delta(source.stream(spark), str(tmp_path / "table"), running)
    assert report == LatestReport(batches=2, records=8, without_key=1, keys=4, tombstones=2)
    source.add([Row(b"8", b"a"), Row(None, b"c")])
    latest_into_delta(source.stream(spark), str(tmp_path / "table"), running)
    table = existing_table("delta", tmp_path / "table")
    found: list[dict[str, Any]] = [row for batch in table.iter_rows() for row in batch.to_pylist()]
    kept = {(row["offset"], row["key"], row["value"]) for row in found}
    assert kept == newest(latest(source.batch(spark))) == {(1, b"b", b"2"), (5, b"b", b"5"), (8, b"a", b"8")}
    output = TableOutput("parquet", str(tmp_path / "plain"))
    report = latest_into(source.batch(spark), output, Running())
    assert (report.keys, report.tombstones) == (3, 2)
    with pytest.raises(KafkaConfigurationError, match="Delta"):
        latest_into(source.stream(spark), output, running)
    with pytest.raises(KafkaConfigurationError, match="'offset'"):
        latest(source.batch(spark).drop("offset"))
