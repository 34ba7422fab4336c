"""``mode=batches``: a row for each record batch, and for bytes that are no batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.kafka.make_golden import GOLDEN
from support.pipeline.log_source_kit import WHERE, partition_on_disk, slices_in
from support.pipeline.pipeline_kit import rows_of
from support.storage.log_workload import append_random, append_transactions
from support.storage.logs import NOW_MS, batch

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.values import TopicPartition
from splashdam.net.cluster.fetch_client import LATEST
from splashdam.pipeline.log_source.batches import arrow_schema, batch_columns, batch_ddl, read_batches
from splashdam.pipeline.log_source.filesystems import location_of
from splashdam.pipeline.log_source.offline_logs import OfflineLogs
from splashdam.pipeline.log_source.slices import ReadingRules
from splashdam.record.sealing import build_batch
from splashdam.storage.inspect.dump import dump_file
from splashdam.storage.log import Log
from splashdam.storage.settings import LogSettings

pytest.importorskip("pyarrow", reason="needs splashdam[spark]")

ALL = tuple(part.split("`")[1] for part in batch_ddl().split(", "))
CHECKED, UNCHECKED = ReadingRules(), ReadingRules(check_crcs=False, headers_only=True)
SAME = ("baseOffset", "lastOffset", "position", "magic", "maxTimestamp", "crc")
OF_FORMAT_2 = (
    "baseSequence",
    "lastSequence",
    "producerId",
    "producerEpoch",
    "partitionLeaderEpoch",
    "isTransactional",
    "isControl",
)


def batches_of(
    path: Path, rules: ReadingRules = CHECKED, *, where: TopicPartition = WHERE, max_bytes: int = 1 << 30
) -> list[dict[str, Any]]:
    """All rows of one partition."""
    slices = slices_in(path, where=where, max_bytes=max_bytes)
    return [row for each in slices for row in rows_of(read_batches(each, ALL, rules))]


@pytest.mark.parametrize(
    "partition", sorted(path for path in GOLDEN.glob("kafka-*/*-0")), ids=lambda path: path.name
)
@pytest.mark.parametrize("rules", [CHECKED, UNCHECKED], ids=["checked", "unchecked"])
def test_batches_of_a_real_kafka_are_described_as_by_dump_log(partition: Path, rules: ReadingRules) -> None:
    """Every header field, every format, whatever the slices."""
    topic = partition.name.removesuffix("-0")
    found = batches_of(partition.parent, rules, where=TopicPartition(topic, 0), max_bytes=900)
    expected = [
        {**entry, "segment": int(file.stem)}
        for file in sorted(partition.glob("*.log"))
        for entry in dump_file(str(file))
        if "tail" not in entry
    ]
    assert len(found) == len(expected) > 0
    for row, entry in zip(found, expected, strict=True):
        names = (*SAME, "segment", *(OF_FORMAT_2 if entry["magic"] == 2 else ()))
        if entry["maxTimestamp"] >= 0:
            entry["maxTimestamp"] *= 1000
        else:
            entry["maxTimestamp"] = None
        assert {name: row[name] for name in names} == {name: entry[name] for name in names}
        assert row["recordCount"] == (None if entry["count"] < 0 else entry["count"])
        assert (row["sizeInBytes"], row["compression"]) == (entry["size"], entry["compresscodec"])
        assert row["crcValid"] is (True if rules.check_crcs else None)
        assert row["problem"] is None


def test_markers_are_rows_with_their_type(tmp_path: Path) -> None:
    """Records of transactions and how these ended, without decoding a record of data."""
    path = partition_on_disk(tmp_path, lambda log: append_transactions(log, 1, 40))
    rows = batches_of(path, UNCHECKED)
    kinds = {row["controlType"] for row in rows if row["isControl"]}
    assert kinds == {"ABORT", "COMMIT"}
    assert {row["controlType"] for row in rows if not row["isControl"]} == {None}


def test_compaction_shows_in_holes_and_delete_horizons(tmp_path: Path) -> None:
    """Golden: a batch with tombstones has its horizon instead of a base timestamp."""
    rows = batches_of(GOLDEN / "kafka-4.3.1", where=TopicPartition("compacted", 0))
    with_horizon = [row for row in rows if row["deleteHorizon"] is not None]
    assert all(row["baseTimestamp"] is None for row in with_horizon)
    assert any(row["recordCount"] < row["lastOffset"] - row["baseOffset"] + 1 for row in rows)


def test_damage_is_a_row(tmp_path: Path) -> None:
    """With its place, its reason, and what can be read of the header; a torn end likewise."""
    path = partition_on_disk(tmp_path, lambda log: append_random(log, 5, 12))
    file = sorted((path / "t-0").glob("*.log"))[0]
    before = batches_of(path)
    hit, last = before[1], [row for row in before if row["segment"] == 0][-1]
    data = bytearray(file.read_bytes())
    data[hit["position"] + 65] ^= 0xFF
    file.write_bytes(data[:-1])
    is_active = last is before[-1]
    rows = batches_of(path, ReadingRules(fails=False))
    damaged = [row for row in rows if row["problem"] is not None]
    assert [row["position"] for row in damaged] == [hit["position"], last["position"]]
    assert "checksum" in damaged[0]["problem"]
    assert (damaged[0]["baseOffset"], damaged[0]["crcValid"]) == (hit["baseOffset"], False)
    assert "cut short" in damaged[1]["problem"]
    assert damaged[1]["problem"].startswith("torn end") or not is_active
    assert [row for row in rows if row["problem"] is None] == [
        row for row in before if row["position"] not in (hit["position"], last["position"]) or row["segment"]
    ]


def test_damage_without_a_header_has_its_place_alone(tmp_path: Path) -> None:
    """Noise instead of a batch."""
    path = partition_on_disk(tmp_path, lambda log: log.append_as_leader(batch(b"a"), now_ms=NOW_MS))
    file = path / "t-0" / f"{0:020d}.log"
    size = file.stat().st_size
    file.write_bytes(file.read_bytes() + b"\xee" * 77)
    row = batches_of(path)[-1]
    assert (row["position"], row["sizeInBytes"], row["magic"], row["crc"]) == (size, 77, None, None)
    assert row["problem"].startswith("torn end: ")


@pytest.mark.parametrize("before", [0, 3])
def test_a_segment_of_one_torn_batch_is_a_row(tmp_path: Path, before: int) -> None:
    """There is no offset to read, and yet something to tell; records end where they end."""

    def fill(log: Log) -> None:
        for _ in range(before + 1):
            log.append_as_leader(batch(b"x" * 100), now_ms=NOW_MS)

    path = partition_on_disk(tmp_path, fill, LogSettings(segment_bytes=200))
    file = path / "t-0" / f"{before:020d}.log"
    file.write_bytes(file.read_bytes()[:-1])
    logs = OfflineLogs([location_of(str(path))], read_committed=False, torn_ends=True)
    end = logs.offsets("t", [0], LATEST)[0]
    rows = [
        row
        for each in logs.slices(WHERE, 0, end, max_bytes=1 << 30)
        for row in rows_of(read_batches(each, ALL, CHECKED))
    ]
    assert [row["problem"] is None for row in rows] == [True] * before + [False]
    assert (rows[-1]["segment"], rows[-1]["position"]) == (before, 0)
    assert "cut short" in rows[-1]["problem"]
    assert slices_in(path) == [] or before


def test_timestamps_beyond_sparks_become_the_last(tmp_path: Path) -> None:
    """64 bits of milliseconds are too many microseconds; -1 means no timestamp."""
    latest, none = (1 << 63) - 1, -1
    path = partition_on_disk(
        tmp_path,
        lambda log: [
            log.append_as_coordinator(bytearray(build_batch([(ms, None, b"v", None)])), now_ms=NOW_MS)
            for ms in (latest, none)
        ],
    )
    (whole,) = slices_in(path)
    assert pa_int(read_batches(whole, ("maxTimestamp",), CHECKED)) == [latest // 1000 * 1000, None]


def pa_int(batches: Any) -> list[int | None]:
    """The only column as numbers: Python has no date of that year."""
    pa = pytest.importorskip("pyarrow", reason="needs splashdam[spark]")
    found: list[int | None] = [n for each in batches for n in each.column(0).cast(pa.int64()).to_pylist()]
    return found


def test_a_range_of_offsets_chooses_batches_that_have_some(tmp_path: Path) -> None:
    """A batch is there as a whole or not at all."""
    path = partition_on_disk(
        tmp_path, lambda log: [log.append_as_leader(batch(b"a", b"b", b"c"), now_ms=NOW_MS) for _ in range(5)]
    )
    slices = slices_in(path, first=4, end=10)
    rows = [row for each in slices for row in rows_of(read_batches(each, ALL, CHECKED))]
    assert [(row["baseOffset"], row["lastOffset"]) for row in rows] == [(3, 5), (6, 8), (9, 11)]


def schema_of(ddl: str) -> Any:
    """Spark's own value of a schema; Spark parses texts in a JVM alone."""
    types = pytest.importorskip("pyspark.sql.types", reason="needs splashdam[spark]")
    kinds = {
        "string": types.StringType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "boolean": types.BooleanType(),
        "timestamp": types.TimestampType(),
    }
    schema = types.StructType()
    for part in filter(None, ddl.replace("`", "").split(", ")):
        name, kind, *not_null = part.split()
        schema = schema.add(name, kinds[kind], not not_null)
    return schema


def test_trap_7_columns_are_as_spark_expects_them(tmp_path: Path) -> None:
    """Trap 7: schema equality, for all columns and for a choice."""
    types = pytest.importorskip("pyspark.sql.pandas.types", reason="needs splashdam[spark]")
    path = partition_on_disk(tmp_path, lambda log: append_random(log, 5, 12))
    for ddl in (batch_ddl(), "crc bigint, topic string, maxTimestamp timestamp"):
        schema = schema_of(ddl)
        names = batch_columns(schema)
        assert arrow_schema(names) == types.to_arrow_schema(schema, timezone="UTC")
        for each in read_batches(slices_in(path)[0], names, CHECKED):
            assert each.schema.equals(arrow_schema(names))


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("baseofset bigint", "baseOffset"),
        ("crc int", "'crc' is bigint"),
        ("topic string not null", "may be null"),
        ("", "empty"),
    ],
)
def test_a_wrong_choice_of_columns_is_refused(ddl: str, message: str) -> None:
    """With the nearest name, or the right type."""
    with pytest.raises(KafkaConfigurationError, match=message):
        batch_columns(schema_of(ddl))
