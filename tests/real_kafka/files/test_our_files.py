"""Kafka's tools find nothing wrong with our files, and a real broker takes them over."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.kafka.kafka_jars import KafkaBroker, dump_log
from support.kafka.kafka_reading import make_topic, served
from support.storage.log_workload import append_random, append_transactions
from support.storage.logs import open_log

from splashdam.record.reader import Record
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.settings import LogSettings

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
SETTINGS = LogSettings(segment_bytes=300_000)


def written_by_us(directory: Path, seed: int) -> list[Record]:
    """A closed log of several segments in ``directory``; returns its records."""
    log = open_log(DiskFiles(), str(directory), settings=SETTINGS)
    records = append_random(log, seed, 400)
    assert len(log.segments) > 3
    log.close()
    return records


def state_files(directory: Path) -> Mapping[str, bytes]:
    """The files that Kafka makes from the ``.log`` files, and those themselves."""
    return {
        path.name: path.read_bytes()
        for path in sorted(directory.iterdir())
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    }


@pytest.mark.parametrize("seed", [1, 2])
def test_kafka_dump_log_finds_nothing_wrong(version: str, tmp_path: Path, seed: int) -> None:
    """Every log, index and snapshot of a random workload, down to each record."""
    directory = tmp_path / "t-0"
    records = written_by_us(directory, seed)
    files = sorted(path for path in directory.iterdir() if path.suffix in (".log", ".index", ".timeindex"))
    said = dump_log(version, *files, options=("--deep-iteration", "--index-sanity-check"))
    for complaint in ("Mismatches", "isvalid: false", "xception", "Non-consecutive", "not found", "corrupt"):
        assert complaint not in said, said[-2000:]
    assert said.count("passed sanity check") == sum(path.suffix == ".index" for path in files) + sum(
        path.suffix == ".timeindex" for path in files
    )
    logs = [path for path in files if path.suffix == ".log"]
    deep = dump_log(version, *logs, options=("--deep-iteration",))
    assert deep.count("| offset: ") == len(records)
    assert deep.count("isvalid: true") == deep.count("baseOffset: ")
    snapshots = sorted(directory.glob("*.snapshot"))
    assert dump_log(version, *snapshots).count("producerId: ") >= len(snapshots)


def test_a_real_broker_takes_our_log_over(broker: KafkaBroker, tmp_path: Path) -> None:
    """It serves exactly our records, and what it makes anew from our log equals our files byte for byte."""
    ours = tmp_path / "t-0"
    records = written_by_us(ours, seed=7)
    assert taken_over(broker, ours) == (records, records)


def transactions_by_us(directory: Path) -> tuple[list[Record], list[Record]]:
    """A closed log with committed, aborted and open transactions; its records, and the committed ones."""
    log = open_log(DiskFiles(), str(directory), settings=LogSettings(segment_bytes=100_000))
    records, committed = append_transactions(log, seed=3, count=400)
    assert 0 < len(committed) < len(records)
    log.close()
    return records, committed


def test_kafka_dump_log_decodes_our_aborted_transactions(version: str, tmp_path: Path) -> None:
    """Every entry of every ``.txnindex``, and the producers of every snapshot."""
    transactions_by_us(tmp_path / "t-0")
    indexes = sorted((tmp_path / "t-0").glob("*.txnindex"))
    entries = sum(index.stat().st_size // 34 for index in indexes)
    assert dump_log(version, *indexes).count("producerId: ") == entries > 20
    assert "producerId: 7" in dump_log(version, *sorted((tmp_path / "t-0").glob("*.snapshot")))


def test_a_real_broker_takes_our_transactions_over(broker: KafkaBroker, tmp_path: Path) -> None:
    """Committed, aborted and open ones: as above, and the index of aborted transactions is Kafka's."""
    ours = tmp_path / "t-0"
    expected = transactions_by_us(ours)
    assert list(ours.glob("*.txnindex"))
    assert taken_over(broker, ours) == expected


def taken_over(broker: KafkaBroker, ours: Path) -> tuple[list[Record], list[Record]]:
    """Hands the ``.log`` files over; returns what is served, read uncommitted and committed."""
    make_topic(broker.bootstrap_servers, "taken")
    broker.stop()
    theirs = broker.data / "taken-0"
    metadata = (theirs / "partition.metadata").read_bytes()
    shutil.rmtree(theirs)
    theirs.mkdir()
    for log in ours.glob("*.log"):
        shutil.copy(log, theirs)
    (theirs / "partition.metadata").write_bytes(metadata)
    (broker.data / ".kafka_cleanshutdown").unlink()
    broker.start()
    servers = broker.bootstrap_servers
    found = served(servers, "taken"), served(servers, "taken", committed=True)
    broker.stop()
    assert state_files(theirs) == state_files(ours)
    return found
