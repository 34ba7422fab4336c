"""tests/golden: directories that a real Kafka wrote open, serve the same, are rebuilt byte for byte."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from kafka.record.memory_records import MemoryRecords
from support.kafka.kafka_reading import served
from support.kafka.make_golden import GOLDEN, digest
from support.storage.logs import copy_directory, log_files, open_log, read_all

from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.record.reader import read_records
from splashdam.record.stored import iter_stored_headers, stored_crc_ok
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.log import MAX_TIMESTAMP
from splashdam.storage.producers.snapshots import decode_snapshot
from splashdam.storage.settings import LogSettings

FILES = DiskFiles()
SETTINGS = LogSettings(index_interval_bytes=512)
PARTITIONS = sorted(path for path in GOLDEN.glob("kafka-*/*-0"))
HAVE_FORMAT_0 = ("format0-0",)


@pytest.fixture(params=PARTITIONS, ids=lambda path: path.name)
def partition(request: pytest.FixtureRequest) -> Path:
    """One partition directory; not to be written to."""
    path: Path = request.param
    return path


@pytest.mark.parametrize("version", ["kafka-4.3.1", "kafka-3.9.2"])
def test_a_data_directory_of_kafka_is_served_as_kafka_served_it(version: str, tmp_path: Path) -> None:
    """To librdkafka, read uncommitted and committed: codecs, transactions, gaps, message formats 0 and 1."""
    shutil.copytree(GOLDEN / version, tmp_path / "data")
    expected = json.loads((GOLDEN / version / "served.json").read_text())
    found = {}
    with EmbeddedBroker(tmp_path / "data", fsync=False) as broker:
        for topic in expected:
            uncommitted = served(broker.bootstrap_servers, topic)
            committed = served(broker.bootstrap_servers, topic, committed=True)
            found[topic] = {
                "records": len(uncommitted),
                "digest": digest(uncommitted),
                "committed_records": len(committed),
                "committed_digest": digest(committed),
            }
    assert found == expected


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "after a crash"])
def test_each_log_opens(partition: Path, tmp_path: Path, clean: bool) -> None:
    """With the records that Kafka served, whether the log is trusted or checked; a second start agrees."""
    expected = json.loads((partition.parent / "served.json").read_text())[partition.name.removesuffix("-0")]
    directory = copy_directory(partition, tmp_path / partition.name)
    for _ in range(2):
        log = open_log(FILES, str(directory), settings=SETTINGS, clean=clean)
        records = [record for record in read_all(log) if not is_marker(record.key, partition)]
        assert (len(records), digest(records)) == (expected["records"], expected["digest"])
        log.close()


def is_marker(key: bytes | None, partition: Path) -> bool:
    return partition.name == "transactions-0" and key is not None and len(key) == 4


def test_indexes_made_of_the_log_files_alone_are_kafkas(partition: Path, tmp_path: Path) -> None:
    """Offset, time and transaction indexes, of every format, byte for byte; and snapshots entry by entry."""
    rebuilt = tmp_path / partition.name
    rebuilt.mkdir()
    for log in partition.glob("*.log"):
        shutil.copyfile(log, rebuilt / log.name)
    open_log(FILES, str(rebuilt), settings=SETTINGS).close()
    for name, data in log_files(partition).items():
        if name.endswith((".log", ".index", ".timeindex", ".txnindex")):
            assert (rebuilt / name).read_bytes() == data, name
        elif name.endswith(".snapshot") and partition.name != "compacted-0":  # it knows of removed records
            assert entries(rebuilt / name) == entries(partition / name), name


def entries(path: Path) -> list[tuple[object, ...]]:
    """In the order of producer ids; Kafka's is that of a hash map."""
    found = decode_snapshot(path.read_bytes())
    return sorted(
        (
            each.producer_id, each.epoch, each.last_sequence, each.timestamp_ms, each.coordinator_epoch,
            each.transaction_first_offset, *each.batches,
        )
        for each in found
    )  # fmt: skip


def test_kafka_python_reads_the_same(partition: Path) -> None:
    """Record by record, of every format and codec; every checksum is right."""
    for path in sorted(partition.glob("*.log")):
        data = path.read_bytes()
        for position, header in iter_stored_headers(data):
            assert stored_crc_ok(data, position, header)
            if header.magic == 0 and header.codec == 3:
                continue  # kafka-python wants another library for the old header of lz4
            batch = MemoryRecords(data[position : position + header.size_bytes]).next_batch()
            theirs = [
                (each.offset, -1 if each.timestamp is None else each.timestamp, each.key, each.value)
                for each in batch
            ]
            assert [record[:4] for record in read_records(data, position)] == theirs


@pytest.mark.parametrize("name", ["format1-0", "codecs-0"])
def test_look_up_by_timestamp(name: str, tmp_path: Path) -> None:
    """Every timestamp leads to the first record that is at least as late, in wrappers too."""
    (source,) = (path for path in PARTITIONS if path.name == name)
    log = open_log(FILES, str(copy_directory(source, tmp_path / name)), settings=SETTINGS)
    records = read_all(log)
    for timestamp in {record.timestamp_ms for record in records}:
        first = next(record.offset for record in records if record.timestamp_ms >= timestamp)
        assert log.offset_for_timestamp(timestamp).offset == first
    assert log.offset_for_timestamp(MAX_TIMESTAMP).timestamp_ms == max(each.timestamp_ms for each in records)
    log.close()


def test_a_log_of_format_0_has_no_timestamps(tmp_path: Path) -> None:
    """No look-up finds one, and its time index stays empty until a batch of today comes."""
    (source,) = (path for path in PARTITIONS if path.name in HAVE_FORMAT_0)
    log = open_log(FILES, str(copy_directory(source, tmp_path / "t")), settings=SETTINGS)
    assert log.offset_for_timestamp(0).offset == -1
    assert log.offset_for_timestamp(MAX_TIMESTAMP).offset == -1
    log.close()
    assert (tmp_path / "t" / f"{0:020d}.timeindex").read_bytes() == b""
