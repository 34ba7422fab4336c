"""``decode``: every row goes to one of two places, once, also when the driver dies in between."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.pipeline.pipeline_job_kit import EPOCH, DiedError, Mortal, Row, Source, table_rows

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.jobs.decode import DecodeReport, dead_letters, decode
from splashdam.pipeline.jobs.micro_batches import Running
from splashdam.pipeline.jobs.outputs import TableOutput
from splashdam.pipeline.values.json_values import JsonFormat
from splashdam.pipeline.values.schema_files import ddl_format

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = JsonFormat(pa.struct([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())]))
HEADER = {"key": "h", "value": b"1"}


@pytest.mark.spark
def test_restart_between_the_two_outputs(spark: SparkSession, tmp_path: Path) -> None:
    """The driver died when the good rows were committed: the batch is repeated, nothing is there twice."""
    source = Source(tmp_path / "in")
    source.add([Row(b'{"id":1,"name":"a"}'), Row(b'{"id":"1"}'), Row(None, key=b"gone")])
    source.add([Row(b'{"id":2}'), Row(b"{", headers=[HEADER])])
    good, bad = TableOutput("parquet", str(tmp_path / "good")), TableOutput("parquet", str(tmp_path / "bad"))
    running = Running(str(tmp_path / "checkpoint"))
    with pytest.raises(DiedError):
        decode(source.stream(spark), FORMAT, Mortal(good, 1), bad, running)
    assert len(table_rows(tmp_path / "bad")) == 1
    report = decode(source.stream(spark), FORMAT, good, bad, running)
    assert report == DecodeReport(batches=1, records=2, decoded=1, rejected={"not_json": 1})
    decoded = {row["offset"]: row["value"] for row in table_rows(tmp_path / "good")}
    assert len(table_rows(tmp_path / "good")) == 3
    assert decoded == {0: {"id": 1, "name": "a"}, 2: None, 3: {"id": 2, "name": None}}
    rejected = {row["offset"]: (row["value"], row["reason"]) for row in table_rows(tmp_path / "bad")}
    assert rejected == {1: (b'{"id":"1"}', "wrong_type"), 4: (b"{", "not_json")}
    # A new table with the same checkpoint was empty, and stayed without the rows until now.
    with pytest.raises(KafkaConfigurationError, match=f"there is no table {tmp_path}/good2"):
        decode(source.stream(spark), FORMAT, TableOutput("parquet", f"{tmp_path}/good2"), bad, running)


@pytest.mark.spark
def test_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    """The record as it was, and behind its headers what Kafka Connect would add."""
    source = Source(tmp_path / "in")
    source.add([Row(b"{", key=b"k", second=1.5, headers=[HEADER]), Row(b"[")])
    rows = source.batch(spark).selectExpr("*", "'not_json' AS reason", "'no' AS detail")
    first, second = dead_letters(rows, "q").orderBy("key", ascending=False).collect()
    assert (bytes(first.key), bytes(first.value), first.timestamp.timestamp() % 60) == (b"k", b"{", 1.5)
    found = [(header.key, bytes(header.value)) for header in first.headers]
    assert found == [
        ("h", b"1"),
        ("__connect.errors.topic", b"t"),
        ("__connect.errors.partition", b"0"),
        ("__connect.errors.offset", b"0"),
        ("splashdam.errors.timestamp", b"1767225601500"),
        ("__connect.errors.connector.name", b"q"),
        ("__connect.errors.stage", b"VALUE_CONVERTER"),
        ("__connect.errors.exception.class.name", b"splashdam.pipeline.values.verdicts.BadValueError"),
        ("__connect.errors.exception.message", b"no"),
        ("splashdam.errors.reason", b"not_json"),
    ]
    assert [header.key for header in second.headers] == [key for key, _ in found[1:]]


RICH = JsonFormat(
    pa.struct(
        [
            ("tags", pa.list_(pa.string())),
            ("at", pa.timestamp("us", tz="UTC")),
            ("local", pa.timestamp("us")),
            ("day", pa.date32()),
            ("counts", pa.map_(pa.string(), pa.int32())),
            ("in", pa.struct([("x", pa.list_(pa.struct([("y", pa.float32())])))])),
        ]
    )
)
RICH_VALUE = (
    b'{"tags":["a",null],"at":"2026-01-01T00:00:00Z","local":"2026-01-01T00:00:00","day":"2026-01-02",'
    b'"counts":{"n":1},"in":{"x":[{"y":0.5}]}}'
)


@pytest.mark.spark
def test_types(spark: SparkSession, tmp_path: Path) -> None:
    """Every type finds its way through Spark into a table."""
    source = Source(tmp_path / "in")
    source.add([Row(RICH_VALUE)])
    good, bad = TableOutput("parquet", str(tmp_path / "good")), TableOutput("parquet", str(tmp_path / "bad"))
    decode(source.batch(spark), RICH, good, bad, Running())
    assert [row["value"] for row in table_rows(tmp_path / "good")] == [
        {
            "tags": ["a", None],
            "at": EPOCH,
            "local": EPOCH.replace(tzinfo=None),
            "day": date(2026, 1, 2),
            "counts": [("n", 1)],
            "in": {"x": [{"y": 0.5}]},
        }
    ]


@pytest.mark.spark
def test_ddl(spark: SparkSession) -> None:
    """Spark's own words for columns; NOT NULL is required."""
    assert spark.version
    assert ddl_format("id bigint NOT NULL, name string") == FORMAT
    with pytest.raises(KafkaConfigurationError, match="not a DDL"):
        ddl_format("id bigin NOT NULL")
    with pytest.raises(KafkaConfigurationError, match="no columns"):
        ddl_format("bigint")


@pytest.mark.spark
def test_batch(spark: SparkSession, tmp_path: Path) -> None:
    """A batch job under a name can be started again; what it was told of its rows it tells."""
    source = Source(tmp_path / "in")
    source.add([Row(b'{"id":1}'), Row(b"{}")])
    told: list[Any] = []
    good, bad = TableOutput("parquet", str(tmp_path / "good")), TableOutput("parquet", str(tmp_path / "bad"))
    for _ in range(2):
        report = decode(source.batch(spark), FORMAT, good, bad, Running(query="job", on_progress=told.append))
        assert report == DecodeReport(1, 2, 1, {"missing_field": 1})
    assert [progress.rows for progress in told] == [2, 2]
    assert (len(table_rows(tmp_path / "good")), len(table_rows(tmp_path / "bad"))) == (1, 1)
    with pytest.raises(KafkaConfigurationError, match="column 'value'"):
        decode(source.batch(spark).drop("value"), FORMAT, good, bad, Running())
    with pytest.raises(KafkaConfigurationError, match="checkpoint"):
        decode(source.stream(spark), FORMAT, good, bad, Running())
