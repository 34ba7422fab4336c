"""Segment files read without a broker: each record once, whatever the slices, with and without indexes."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.kafka.make_golden import GOLDEN, digest
from support.pipeline.log_source_kit import (
    WHERE,
    copy_with,
    offline,
    partition_on_disk,
    records_in,
    slices_in,
)
from support.running.examples import examples
from support.storage.log_workload import append_random, append_transactions
from support.storage.logs import NOW_MS, batch

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.values import TopicPartition
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST
from splashdam.pipeline.log_source.records import RecordRules, read_records
from splashdam.pipeline.schema import all_columns
from splashdam.record.reader import Record
from splashdam.storage.log import Log
from splashdam.storage.settings import LogSettings

pytest.importorskip("pyarrow", reason="needs splashdam[spark]")

GOLDEN_PARTITIONS = sorted(path for path in GOLDEN.glob("kafka-*/*-0"))


@pytest.fixture(scope="module")
def random_log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    """Batches of every codec in some thirty segments; not to be written to."""
    expected: list[Record] = []
    path = partition_on_disk(
        tmp_path_factory.mktemp("random"), lambda log: expected.extend(append_random(log, 7, 120))
    )
    return path, expected


@pytest.mark.parametrize("partition", GOLDEN_PARTITIONS, ids=lambda path: path.name)
@pytest.mark.parametrize("committed", [False, True], ids=["uncommitted", "committed"])
@pytest.mark.parametrize("max_bytes", [700, 1 << 30])
def test_logs_of_a_real_kafka_are_read_as_it_served_them(
    partition: Path, committed: bool, max_bytes: int
) -> None:
    """Codecs, transactions, compaction, formats 0 and 1, LogAppendTime, in small slices and in large ones."""
    topic = partition.name.removesuffix("-0")
    served = json.loads((partition.parent / "served.json").read_text())[topic]
    slices = slices_in(
        partition.parent, where=TopicPartition(topic, 0), committed=committed, max_bytes=max_bytes
    )
    found = records_in(slices, committed=committed)
    prefix = "committed_" if committed else ""
    assert (len(found), digest(found)) == (served[prefix + "records"], served[prefix + "digest"])


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_each_record_is_read_exactly_once(data: st.DataObject, random_log: tuple[Path, list[Record]]) -> None:
    """Random ranges, cut into random slices, read in pieces of random sizes."""
    path, expected = random_log
    end = expected[-1].offset + 1
    first = data.draw(st.integers(0, end), label="first")
    last = data.draw(st.integers(first, end), label="end")
    max_bytes = data.draw(st.sampled_from([1, 500, 1500, 6000, 1 << 30]), label="max_bytes")
    slices = slices_in(path, first=first, end=last, max_bytes=max_bytes)
    read_bytes = data.draw(st.sampled_from([61, 300, 5000, 1 << 20]), label="read_bytes")
    assert records_in(slices, read_bytes=read_bytes) == expected[first:last]


def test_slices_are_cut_at_index_entries(random_log: tuple[Path, list[Record]]) -> None:
    """Small ones split segments, large ones join them."""
    path, _ = random_log
    segments = len(list((path / "t-0").glob("*.log")))
    assert len(slices_in(path, max_bytes=1000)) > segments
    assert 1 < len(slices_in(path, max_bytes=50_000)) < segments
    assert len(slices_in(path)) == 1


def no_index(partition: Path) -> None:
    """All offset indexes are gone."""
    for each in partition.glob("*.index"):
        each.unlink()


def foreign_index(partition: Path) -> None:
    """Entries that rise, and name no batch."""
    for each in partition.glob("*.index"):
        size = each.with_suffix(".log").stat().st_size
        each.write_bytes(b"".join(struct.pack(">ii", n, n * 7 + 1) for n in range(size // 7)))


def shifted_index(partition: Path) -> None:
    """Entries that name a batch, but not the one with that offset."""
    for each in partition.glob("*.index"):
        entries = list(struct.iter_unpack(">ii", each.read_bytes()))
        each.write_bytes(b"".join(struct.pack(">ii", offset + 1, position) for offset, position in entries))


def torn_index(partition: Path) -> None:
    """The last entry is half written."""
    for each in partition.glob("*.index"):
        each.write_bytes(each.read_bytes()[:-5])


def preallocated_index(partition: Path) -> None:
    """Zeros behind the last entry, as in the active segment of a running Kafka."""
    for each in partition.glob("*index"):
        each.write_bytes(each.read_bytes() + bytes(1200))


def index_of_noise(partition: Path) -> None:
    """Anything at all."""
    for number, each in enumerate(partition.glob("*index")):
        each.write_bytes(bytes((number * 31 + n * 17) % 256 for n in range(333)))


@pytest.mark.parametrize(
    "change", [no_index, foreign_index, shifted_index, torn_index, preallocated_index, index_of_noise]
)
def test_a_wrong_index_costs_time_and_no_record(
    change: object, random_log: tuple[Path, list[Record]], tmp_path: Path
) -> None:
    """Its entries are checked before they are used."""
    assert callable(change)
    path, expected = random_log
    changed = copy_with(path, tmp_path / "changed", change)
    assert records_in(slices_in(changed, max_bytes=900)) == expected
    assert records_in(slices_in(changed, first=777, end=1500, max_bytes=900)) == expected[777:1500]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("max_bytes", [400, 1 << 30])
@pytest.mark.parametrize("has_snapshots", [True, False], ids=["snapshots", "no snapshots"])
def test_transactions_that_do_not_count_are_left_out(
    tmp_path: Path, seed: int, max_bytes: int, has_snapshots: bool
) -> None:
    """Aborted ones, and everything from the first open one on."""
    kept: list[Record] = []
    everything: list[Record] = []

    def fill(log: Log) -> None:
        found, committed = append_transactions(log, seed, 60)
        everything.extend(found)
        kept.extend(committed)

    path = partition_on_disk(tmp_path, fill)
    if not has_snapshots:
        for each in (path / "t-0").glob("*.snapshot"):
            each.write_bytes(b"no snapshot")
    slices = slices_in(path, committed=True, max_bytes=max_bytes)
    assert records_in(slices, committed=True) == kept
    assert records_in(slices_in(path, max_bytes=max_bytes)) == everything


def test_an_abort_that_is_not_listed_yet_is_found(tmp_path: Path) -> None:
    """The marker is in the active segment; the list of aborted transactions may lag behind."""
    kept: list[Record] = []
    path = partition_on_disk(tmp_path, lambda log: kept.extend(append_transactions(log, 3, 60)[1]))
    partition = path / "t-0"
    newest = sorted(partition.glob("*.log"))[-1]
    newest.with_suffix(".txnindex").unlink(missing_ok=True)
    for each in sorted(partition.glob("*.snapshot"))[1:]:  # one that is older than the last segment
        each.unlink()
    assert records_in(slices_in(path, committed=True), committed=True) == kept


def test_a_lost_list_of_aborted_transactions_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Snapshots say nothing of what ended before them; the markers in the log do."""
    expected: list[Record] = []
    path = partition_on_disk(tmp_path, lambda log: expected.extend(append_transactions(log, 3, 60)[0]))
    for each in (path / "t-0").glob("*.txnindex"):
        each.unlink()
    slices = slices_in(path, committed=True)
    with pytest.raises(CorruptMessageError, match=r"\.log, position [0-9]+: producer .* no \.txnindex lists"):
        records_in(slices, committed=True)
    assert "its records were read" not in caplog.text
    records_in(slices, committed=True, fails=False)
    assert "its records were read" in caplog.text


def test_records_before_the_log_start_do_not_count(tmp_path: Path) -> None:
    """DeleteRecords leaves them in the file, and a line in the root; the high watermark ends nothing."""
    path = partition_on_disk(tmp_path, lambda log: log.append_as_leader(batch(*[b"x"] * 9), now_ms=NOW_MS))
    (path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    (path / "replication-offset-checkpoint").write_text("0\n1\nt 0 6\n")
    for each in (path, path / "t-0"):
        assert [record.offset for record in records_in(slices_in(each))] == [4, 5, 6, 7, 8]


def test_leftovers_of_brokers_are_no_segments(random_log: tuple[Path, list[Record]], tmp_path: Path) -> None:
    """Files on their way in or out, directories of deleted and moved partitions."""
    path, expected = random_log
    changed = tmp_path / "changed"
    shutil.copytree(path, changed)
    log = next((changed / "t-0").glob("*.log"))
    for suffix in (".deleted", ".cleaned"):
        shutil.copy(log, f"{log}{suffix}")
    moved = f"t-1.{'0' * 32}"
    for name in (f"{moved}-delete", f"{moved}-future", "__cluster_metadata-0", "photos-2024", "plain"):
        (changed / name).mkdir()
        if name != "photos-2024":
            shutil.copy(log, changed / name)
    logs = offline(changed)
    assert (logs.topics(), logs.partitions("t")) == (["t"], [0])
    assert records_in(slices_in(changed)) == expected


def test_old_batches_are_not_decoded_for_new_records(random_log: tuple[Path, list[Record]]) -> None:
    """A batch is left out where its largest timestamp is too old; what is read may hold older records."""
    path, expected = random_log
    since_ms = NOW_MS + 100_000
    found = records_in(slices_in(path), since_ms=since_ms)
    assert [each for each in found if each.timestamp_ms >= since_ms] == [
        each for each in expected if each.timestamp_ms >= since_ms
    ]
    assert 0 < len(found) < len(expected)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(late_ms=st.integers(-4_000, 400_000))
def test_times_are_found_as_a_broker_finds_them(late_ms: int, random_log: tuple[Path, list[Record]]) -> None:
    """The first record that is not older, through time indexes and without."""
    path, expected = random_log
    due = next((each.offset for each in expected if each.timestamp_ms >= NOW_MS + late_ms), -1)
    assert offline(path).offsets("t", [0], NOW_MS + late_ms) == {0: due}


@pytest.mark.parametrize("change", [no_index, index_of_noise, preallocated_index])
def test_times_are_found_with_wrong_indexes(
    change: object, random_log: tuple[Path, list[Record]], tmp_path: Path
) -> None:
    """A time index whose last entry names no batch is not believed."""
    assert callable(change)
    path, expected = random_log
    changed = copy_with(path, tmp_path / "changed", change)
    for late_ms in (0, 50_000, 120_000):
        due = next((each.offset for each in expected if each.timestamp_ms >= NOW_MS + late_ms), -1)
        assert offline(changed).offsets("t", [0], NOW_MS + late_ms) == {0: due}


def test_edges_of_a_log(random_log: tuple[Path, list[Record]]) -> None:
    """Its start, and the offset behind its last batch."""
    path, expected = random_log
    logs = offline(path)
    assert logs.offsets("t", [0], EARLIEST) == {0: 0}
    assert logs.offsets("t", [0], LATEST) == {0: expected[-1].offset + 1}


def test_an_empty_log_has_no_slices(tmp_path: Path) -> None:
    """A partition that nobody has written to."""
    path = partition_on_disk(tmp_path, lambda log: None)
    assert slices_in(path) == []


def test_trap_7_every_batch_has_the_schema_spark_expects(random_log: tuple[Path, list[Record]]) -> None:
    """Trap 7: not only the first one."""
    columns = all_columns(include_headers=True)
    for each in slices_in(random_log[0], max_bytes=3000):
        for found in read_records(each, RecordRules(columns)):
            assert found.schema.equals(columns.arrow)


def test_trap_13_no_record_batch_is_large(tmp_path: Path) -> None:
    """Trap 13: 8 MiB at most, but for one record that is larger."""
    values = [bytes(1000)] * 20_000 + [bytes(9 << 20)]

    def fill(log: Log) -> None:
        for start in range(0, len(values), 500):
            log.append_as_leader(batch(*values[start : start + 500]), now_ms=NOW_MS)

    path = partition_on_disk(tmp_path, fill, LogSettings(max_message_bytes=16 << 20))
    rules = RecordRules(all_columns(include_headers=False))
    found = [each for part in slices_in(path) for each in read_records(part, rules)]
    assert sum(each.num_rows for each in found) == len(values)
    assert all(each.nbytes <= 8 << 20 for each in found if each.num_rows > 1)


def test_slices_are_pickled_for_workers(random_log: tuple[Path, list[Record]]) -> None:
    """Trap 15: what travels to a task is a value; it is read where it arrives."""
    import pickle

    path, expected = random_log
    slices = pickle.loads(pickle.dumps(slices_in(path, max_bytes=5000)))
    assert records_in(slices) == expected
    assert all(each.where == WHERE for each in slices)
