"""Our cleaner and Kafka's make the same of the same log; Kafka's broker and tools take what ours made."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from support.kafka.kafka_jars import VERSIONS, KafkaBroker, dump_log
from support.kafka.kafka_reading import make_topic, served
from support.kafka.kafka_writing import BROKER_SETTINGS, START_MS
from support.storage.compacted_logs import COMPACTED, clean
from support.storage.logs import NOW_MS, copy_directory, open_log

from splashdam.record.batch import BatchHeader
from splashdam.record.reader import Record, read_records
from splashdam.record.stored import iter_stored_headers
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.log import Log

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
TOPIC = "compacted"
_WAIT_SECONDS = 30
_SEGMENT_MS = 60_000
_CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "1.0",  # no log is dirtier than that: Kafka waits until it is told
    "segment.ms": str(_SEGMENT_MS),
    "delete.retention.ms": "1000",
}


def write(servers: str) -> None:
    """Rounds over the same keys: codecs, tombstones, and transactions of which some are aborted."""
    for number in range(6):
        moment = START_MS + number * 2 * _SEGMENT_MS
        codec = ("none", "gzip", "lz4")[number % 3]
        plain = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "compression.type": codec,
                "log_level": 0,
            }
        )
        for key in range(40):
            value = None if key % 7 == number else b"round %d" % number
            plain.produce(TOPIC, value, b"key %d" % (key * (number + 1) % 60), timestamp=moment)
        assert plain.flush(_WAIT_SECONDS) == 0
        bound = confluent_kafka.Producer(
            {"bootstrap.servers": servers, "transactional.id": f"t{number % 2}", "log_level": 0}
        )
        bound.init_transactions(_WAIT_SECONDS)
        bound.begin_transaction()
        for key in range(5):
            bound.produce(TOPIC, b"of %d" % number, b"key %d" % (key + number), timestamp=moment)
        assert bound.flush(_WAIT_SECONDS) == 0
        (bound.abort_transaction if number % 3 == 1 else bound.commit_transaction)(_WAIT_SECONDS)


def clean_by_kafka(broker: KafkaBroker) -> None:
    """Tells a running broker to clean, and waits until it has."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    entry = ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(_WAIT_SECONDS)
    checkpoint = broker.data / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + _WAIT_SECONDS
    while f"{TOPIC} 0 " not in (checkpoint.read_text() if checkpoint.exists() else ""):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def contents(directory: Path) -> list[tuple[BatchHeader, bytes, list[Record]]]:
    """Header, bytes and records of all batches of a directory."""
    found = []
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for position, header in iter_stored_headers(data):
            whole = data[position : position + header.size_bytes]
            found.append((header, whole, read_records(whole)))
    return found


def open_ours(directory: Path) -> Log:
    log = open_log(DiskFiles(), str(directory), settings=COMPACTED, clean=True)
    log.flush()
    return log


@pytest.mark.parametrize("version", VERSIONS)
def test_our_cleaner_makes_of_kafkas_log_what_kafkas_does(version: str, tmp_path: Path) -> None:
    """Batch by batch: byte for byte, but for the moment from which tombstones and markers may go."""
    broker = KafkaBroker(
        version, tmp_path / "kafka", {**BROKER_SETTINGS, "log.segment.delete.delay.ms": "100"}
    )
    broker.start()
    try:
        make_topic(broker.bootstrap_servers, TOPIC, _CONFIGS)
        write(broker.bootstrap_servers)
        broker.stop()
        ours = copy_directory(broker.data / f"{TOPIC}-0", tmp_path / f"{TOPIC}-0")
        log = open_ours(ours)
        end = clean(DiskFiles(), log)
        assert end == log.segments[-1].base_offset > 0
        log.close()
        broker.start()
        clean_by_kafka(broker)
        broker.stop()
    finally:
        broker.stop()
    theirs = broker.data / f"{TOPIC}-0"
    assert f"{TOPIC} 0 {end}\n" in (broker.data / "cleaner-offset-checkpoint").read_text()
    expected = [each for each in contents(theirs) if each[0].base_offset < end]
    found = [each for each in contents(ours) if each[0].base_offset < end]
    assert [header.base_offset for header, _, _ in found] == [header.base_offset for header, _, _ in expected]
    for (header, data, records), (their_header, their_data, their_records) in zip(
        found, expected, strict=True
    ):
        assert records == their_records
        if header.delete_horizon_ms is None:
            assert data == their_data
        else:
            same = {"batch_length": 0, "crc": 0, "base_timestamp": 0}
            assert header._replace(**same) == their_header._replace(**same)
    bases = sorted(path.name for path in theirs.glob("*.log"))
    assert [path.name for path in sorted(ours.glob("*.log"))] == bases


def test_kafka_takes_a_log_over_that_ours_has_cleaned(
    version: str, broker: KafkaBroker, tmp_path: Path
) -> None:
    """It serves what is left, and its tools find nothing wrong; a second cleaning has been done, too."""
    make_topic(broker.bootstrap_servers, TOPIC, _CONFIGS)
    write(broker.bootstrap_servers)
    broker.stop()
    theirs = broker.data / f"{TOPIC}-0"
    ours = copy_directory(theirs, tmp_path / f"{TOPIC}-0")
    log = open_ours(ours)
    end = clean(DiskFiles(), log)
    clean(DiskFiles(), log, first_dirty=end)
    clean(DiskFiles(), log, first_dirty=end, now_ms=NOW_MS + 5_000)
    log.unlink_deleted(10**9)
    log.close()
    said = dump_log(
        version,
        *sorted(ours.glob("*.log")),
        *sorted(ours.glob("*.index")),
        options=("--deep-iteration",),
    )
    for complaint in ("Mismatches", "isvalid: false", "xception", "not found"):
        assert complaint not in said, said[-2000:]
    records = [record for header, _, records in contents(ours) for record in records if not header.is_control]
    metadata = (theirs / "partition.metadata").read_bytes()
    shutil.rmtree(theirs)
    theirs.mkdir()
    for path in ours.iterdir():
        shutil.copy(path, theirs)
    (theirs / "partition.metadata").write_bytes(metadata)
    broker.start()
    assert served(broker.bootstrap_servers, TOPIC) == records
