"""Tables back into topics: the plan and the slices without a JVM, then a replay that goes on."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pipeline.tables_kit import SCHEMA, every_format, new_table, rows, written

from splashdam import EmbeddedBroker
from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.schema import Columns
from splashdam.pipeline.tables.table import Table, TablePart
from splashdam.testing.topics import create_topic

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from splashdam.pipeline.jobs import replay as replaying
from splashdam.pipeline.jobs.replay import (
    SENT,
    FileRange,
    Reading,
    ReplayReader,
    Slice,
    measured_plan,
    plan_from_json,
    plan_to_json,
    replay,
    slice_batches,
    steps,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def filled(table_format: str, folder: Path) -> tuple[Table, list[dict[str, object]]]:
    """Two topics, two partitions, three batches, one file with records of both topics; and all of its
    rows."""
    table = new_table(table_format, folder, partition_by=("date",))
    batches = [
        [rows(range(50)), rows(range(80), partition=1)],
        [rows(range(50, 100)), rows(range(30), topic="u")],
        [rows(range(100, 150), day=1)],
    ]
    for number, batch in enumerate(batches):
        table.commit("q", number, written(table, *batch))
    return table, pa.Table.from_batches([each for batch in batches for each in batch]).to_pylist()


@every_format
def test_every_record_is_in_one_slice(
    table_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By topic and partition, in the order of offsets, whatever file it is in."""
    monkeypatch.setattr(replaying, "_slice_records", lambda *_: 40)
    table, expected = filled(table_format, tmp_path)
    plan = plan_from_json(plan_to_json(measured_plan(table).steps))
    reading = Reading(table.location, Columns((*SENT, "offset", "timestampType")))
    found: dict[tuple[object, object], list[dict[str, object]]] = {}
    for piece in (piece for step in plan for piece in step):
        for batch in slice_batches(reading, piece):
            found.setdefault((piece.topic, piece.partition), []).extend(
                batch.select(SCHEMA.names).to_pylist()
            )
    for topic, partition in (("t", 0), ("t", 1), ("u", 0)):
        wanted = [row for row in expected if (row["topic"], row["partition"]) == (topic, partition)]
        assert found[topic, partition] == wanted
    assert [len(step) for step in plan] == [3, 2, 1, 1]
    table.close()


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 500), st.integers(0, 90)), max_size=12),
    st.integers(1, 100),
)
def test_slices_cover_every_file(files: list[tuple[int, int, int]], width: int) -> None:
    """Slices of a partition ascend and do not overlap; each names every file that can hold its records."""
    ranges = [
        FileRange(TablePart(f"{at}"), "t", partition, first, first + length)
        for at, (partition, first, length) in enumerate(files)
    ]
    plan = steps(ranges, width)
    for partition in range(3):
        mine = [piece for step in plan for piece in step if piece.partition == partition]
        ends = [offset for piece in mine for offset in (piece.first_offset, piece.end_offset)]
        assert ends == sorted(ends)
        for each in ranges:
            if each.partition == partition:
                having = [piece for piece in mine if each.part in piece.parts]
                assert having[0].first_offset <= each.first_offset
                assert having[-1].end_offset > each.last_offset
                assert sum(piece.end_offset - piece.first_offset for piece in having) == (
                    having[-1].end_offset - having[0].first_offset
                )


def test_the_stream_goes_step_by_step(tmp_path: Path) -> None:
    """Trap 15: one step for each micro-batch, also for a reader that was pickled; then nothing new."""
    table = new_table("parquet", tmp_path)
    part = TablePart("x")
    plan = [(Slice("t", 0, 0, 10, (part,)), Slice("t", 1, 0, 10, (part,))), (Slice("t", 0, 10, 20, (part,)),)]
    reader = ReplayReader(Reading(table.location, Columns(("value",))), plan_to_json(plan))
    reader = pickle.loads(pickle.dumps(reader))
    offsets, limit = [reader.initialOffset()], reader.getDefaultReadLimit()
    for _ in range(3):
        offsets.append(reader.latestOffset(offsets[-1], limit))
    assert [each["step"] for each in offsets] == [0, 1, 2, 2]
    assert [each.value for each in reader.partitions(*offsets[:2])] == list(plan[0])
    assert reader.partitions(*offsets[2:]) == []


def test_a_table_without_kafkas_columns(tmp_path: Path) -> None:
    """It cannot be replayed, and what it lacks is named."""
    table = new_table("parquet", tmp_path, schema=pa.schema([("value", pa.binary()), ("offset", pa.int64())]))
    with pytest.raises(KafkaConfigurationError, match="has no column partition"):
        measured_plan(table)


@pytest.mark.spark
@pytest.mark.kafka(config={"log.retention.ms": -1})  # the records are of 1970
def test_a_replay(spark: SparkSession, kafka_broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Records come back to their partitions, once, also when it is started a second time."""
    table, expected = filled("delta", tmp_path)
    servers = {"kafka.bootstrap.servers": kafka_broker.bootstrap_servers}
    sink = {**servers, "topic": "back", "delivery": "exactly_once"}
    arguments = ("delta", table.location.uri, sink)
    with pytest.raises(KafkaConfigurationError, match="splashdam topics create back --partitions 2"):
        replay(spark, *arguments, checkpoint=tmp_path / "checkpoint")
    create_topic(kafka_broker.bootstrap_servers, "back", 2)
    report = replay(spark, *arguments, checkpoint=tmp_path / "checkpoint")
    assert (report.records, report.batches) == (len(expected), report.steps)
    assert replay(spark, *arguments, checkpoint=tmp_path / "checkpoint").records == 0
    options = {
        **servers,
        "subscribe": "back",
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
    }
    found = (
        spark.read.format("kafka-local").options(**options).load().orderBy("partition", "offset").collect()
    )
    sent = sorted(expected, key=lambda row: (row["partition"], row["topic"], row["offset"]))
    assert sorted((row.partition, bytes(row.value)) for row in found) == sorted(
        (row["partition"], row["value"]) for row in sent
    )
    of_one = [row for row in found if row.partition == 1]
    wanted = [row for row in sent if row["partition"] == 1]
    assert [bytes(row.value) for row in of_one] == [row["value"] for row in wanted]
    assert [row.headers and [(each.key, bytes(each.value)) for each in row.headers] for row in of_one] == [
        row["headers"] and [(each["key"], each["value"]) for each in row["headers"]] for row in wanted
    ]
