"""Directories that a real Kafka wrote: opened, read, and rebuilt byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.running.oracles import shared
from support.storage.logs import NOW_MS, copy_directory, log_files, open_log, read_all, read_headers

from splashdam.model.values import TopicPartition
from splashdam.storage.directories.checkpoints import OffsetCheckpoint, decode_lines, encode_lines
from splashdam.storage.directories.identity import load_identity, take_clean_shutdown
from splashdam.storage.directories.partition_metadata import read_topic_id, write_topic_id
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.log import MAX_TIMESTAMP
from splashdam.storage.manager.log_manager import LogManager
from splashdam.storage.producers.snapshots import decode_snapshot, encode_snapshot
from splashdam.storage.segments.indexes import AbortedTransaction
from splashdam.storage.settings import LogSettings

FILES = DiskFiles()
SETTINGS = LogSettings(segment_bytes=65_536)
GOLD = ["gold-0-original", "gold-0-rebuilt-by-kafka"]


@pytest.fixture
def golden(tmp_path: Path):
    """Copies a golden directory and returns the copy's path."""
    return lambda name: copy_directory(shared(f"golden/{name}"), tmp_path / "data" / name)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "after a crash"])
@pytest.mark.parametrize("name", GOLD)
def test_gold_has_2084_records_in_90_batches(golden, name: str, clean: bool) -> None:
    """Counts and offsets are those of the README, whether the log is trusted or checked."""
    log = open_log(FILES, str(golden(name)), settings=SETTINGS, clean=clean)
    records, headers = read_all(log), read_headers(log)
    assert [record.offset for record in records] == list(range(2084))
    assert (len(headers), sum(header.is_control for header in headers)) == (90, 4)
    assert (log.log_start_offset, log.log_end_offset) == (0, 2084)
    assert [segment.base_offset for segment in log.segments] == [0, 833, 1664]
    assert records[1999].value == b"v01999" * 10
    log.close()


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "after a crash"])
def test_gold_producers_and_aborted_transactions(golden, clean: bool) -> None:
    """Producer state from snapshot and replay is Kafka's; so is the list of aborted transactions."""
    log = open_log(FILES, str(golden("gold-0-original")), settings=SETTINGS, clean=clean)
    state = {entry.producer_id: (entry.last_sequence, entry.coordinator_epoch) for entry in log.producers}
    assert state == {0: (1999, -1), 1: (79, 0)}
    assert log.last_stable_offset == 2084
    first, second = AbortedTransaction(1, 2021, 2041, 2042), AbortedTransaction(1, 2063, 2083, 2084)
    assert log.aborted_transactions(0, 2084) == [first, second]
    assert log.aborted_transactions(0, 2042) == [first]
    assert log.aborted_transactions(2042, 2084) == [second]
    log.close()


def test_rebuilding_from_the_log_files_alone_gives_kafkas_files(golden, tmp_path: Path) -> None:
    """.index, .timeindex, .txnindex and .snapshot come out of the .log files as Kafka made them."""
    expected = log_files(golden("gold-0-rebuilt-by-kafka"))
    target = tmp_path / "rebuilt"
    target.mkdir()
    for name, data in expected.items():
        if name.endswith(".log"):
            (target / name).write_bytes(data)
    open_log(FILES, str(target), settings=SETTINGS).close()
    rebuilt = log_files(target)
    assert rebuilt.pop("leader-epoch-checkpoint") == b"0\n1\n0 0\n"  # Kafka's has a second one of its own
    del expected["leader-epoch-checkpoint"], expected["partition.metadata"]
    assert rebuilt == expected


def test_rebuilding_a_compacted_log_gives_kafkas_indexes(golden, tmp_path: Path) -> None:
    """Those of closed segments, empty ones too; Kafka preallocates the indexes of the active segment."""
    expected = log_files(golden("goldc-0-compacted"))
    target = tmp_path / "rebuilt"
    target.mkdir()
    for name, data in expected.items():
        if name.endswith(".log"):
            (target / name).write_bytes(data)
    open_log(FILES, str(target)).close()
    rebuilt = log_files(target)
    closed = [name for name in expected if name.endswith("index") and not name.startswith(f"{3000:020d}")]
    assert len(closed) == 6
    for name in closed:
        assert rebuilt[name] == expected[name], name


def test_opening_and_closing_a_rebuilt_directory_changes_no_byte(golden) -> None:
    """A clean start and end leave what Kafka left, but for the epoch that starts at the end of the log."""
    directory = golden("gold-0-rebuilt-by-kafka")
    before = log_files(directory)
    open_log(FILES, str(directory), settings=SETTINGS, clean=True).close()
    after = log_files(directory)
    assert after.pop("leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    assert before.pop("leader-epoch-checkpoint") == b"0\n2\n0 0\n2 2084\n"
    assert after == before


def test_gold_by_timestamp(golden) -> None:
    """Every timestamp leads to the first record, in offset order, that is at least as late."""
    log = open_log(FILES, str(golden("gold-0-original")), settings=SETTINGS, clean=True)
    records = read_all(log)
    for timestamp in sorted({record.timestamp_ms for record in records}):
        expected = next(record.offset for record in records if record.timestamp_ms >= timestamp)
        assert log.offset_for_timestamp(timestamp).offset == expected
    largest = max(record.timestamp_ms for record in records)
    assert log.offset_for_timestamp(largest + 1).offset == -1
    assert log.offset_for_timestamp(MAX_TIMESTAMP)[:2] == (2083, largest)
    log.close()


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "after a crash"])
def test_goldc_with_gaps_empty_segments_and_tombstones(golden, clean: bool) -> None:
    """A compacted log: empty segments are walked past, offsets have gaps, tombstones are there."""
    directory = golden("goldc-0-compacted")
    before = log_files(directory)
    log = open_log(FILES, str(directory), clean=clean, recovery_point=3000)
    records = read_all(log)
    assert [record.offset for record in records] == [*range(2960, 3005)]
    assert [record.offset for record in records if record.value is None] == list(range(2961, 3000, 7))
    assert len(read_headers(log)) == 6
    assert (log.log_start_offset, log.log_end_offset) == (0, 3005)
    assert {record.key for record in records[-5:]} == {b"zz"}
    assert read_headers(log, 1500)[0].base_offset == 2879
    log.close()
    after = log_files(directory)
    for name in before:
        if not name.startswith("00000000000000003000"):
            assert after[name] == before[name], name


@pytest.mark.parametrize("name", ["gold-0-original", "goldc-0-compacted"])
def test_snapshots_of_kafka_decode_and_encode_to_themselves(name: str) -> None:
    """The codec of producer snapshots is Kafka's in both directions."""
    files = list(shared(f"golden/{name}").glob("*.snapshot"))
    assert len(files) >= 2
    for file in files:
        assert encode_snapshot(decode_snapshot(file.read_bytes())) == file.read_bytes()


def test_root_files_are_understood(tmp_path: Path) -> None:
    """meta.properties, the marker and the checkpoints of a real data directory."""
    root = copy_directory(shared("golden/root"), tmp_path / "root")
    identity = load_identity(FILES, str(root), node_id=9)
    assert (identity.node_id, identity.cluster_id) == (1, "AUVTnLuORpWJi6Ag4NuOgg")
    assert identity.directory_id == "0fHPCI4tKeW68Ipv006l5g"
    points = OffsetCheckpoint(FILES, f"{root}/recovery-point-offset-checkpoint").read()
    assert len(points) == 10
    assert points[TopicPartition("gold", 0)] == 1664
    assert OffsetCheckpoint(FILES, f"{root}/log-start-offset-checkpoint").read() == {}
    assert take_clean_shutdown(FILES, str(root))
    assert not take_clean_shutdown(FILES, str(root))


@pytest.mark.parametrize("name", ["recovery-point", "replication", "cleaner", "log-start"])
def test_checkpoints_are_written_as_kafka_writes_them(name: str) -> None:
    """Lines of a checkpoint encode to the very file."""
    data = next(shared("golden/root").glob(f"{name}-offset-checkpoint")).read_bytes()
    assert encode_lines(decode_lines(data, name)) == data


def test_partition_metadata_is_written_as_kafka_writes_it(tmp_path: Path) -> None:
    """43 bytes, no newline at the end."""
    source = shared("golden/gold-0-original")
    topic_id = read_topic_id(FILES, str(source))
    assert topic_id is not None
    write_topic_id(FILES, str(tmp_path), topic_id)
    written = (tmp_path / "partition.metadata").read_bytes()
    assert written == (source / "partition.metadata").read_bytes()
    assert len(written) == 43


def test_taking_over_a_data_directory_of_kafka(tmp_path: Path) -> None:
    """Root files, both partitions, and what else Kafka leaves in a data directory."""
    root = copy_directory(shared("golden/root"), tmp_path / "root")
    copy_directory(shared("golden/gold-0-original"), root / "gold-0")
    copy_directory(shared("golden/goldc-0-compacted"), root / "goldc-0")
    for other in ("__cluster_metadata-0", "x-0.0123456789abcdef0123456789abcdef-stray", "lost+found"):
        (root / other).mkdir()
        (root / other / "00000000000000000000.log").touch()
    (root / "old-0.0123456789abcdef0123456789abcdef-delete").mkdir()
    manager = LogManager.open(FILES, str(root), now_ms=NOW_MS)
    assert sorted(manager.topics) == ["gold", "goldc"]
    assert manager.topics["gold"].topic_id == read_topic_id(FILES, str(root / "gold-0"))
    assert {str(tp): log.log_end_offset for tp, log in manager.logs.items()} == {
        "gold-0": 2084,
        "goldc-0": 3005,
    }
    assert not (root / "old-0.0123456789abcdef0123456789abcdef-delete").exists()
    assert (root / "__cluster_metadata-0").exists()
    manager.close()
