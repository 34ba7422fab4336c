"""Data directories that earlier versions wrote: served as they are, written on, and sound afterwards."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kafka.kafka_reading import served
from support.kafka.make_golden import GOLDEN
from support.storage.make_own_golden import (
    COMPACTED,
    PLAIN,
    SETTINGS,
    START_MS,
    TRANSACTIONAL,
    USER,
    WORKER,
    summary,
)

from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.storage.directories.written_by import FORMAT, read_written_by
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.inspect.verify import (
    Level,
    Totals,
    partition_directories,
    verify_partition,
    verify_root,
)

FORMATS = sorted(path.name for path in GOLDEN.glob("splashdam-format-*"))
MARKER, META = ".kafka_cleanshutdown", "splashdam-meta.json"


@pytest.fixture(params=FORMATS)
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the directory of each format."""
    return Path(shutil.copytree(GOLDEN / request.param, tmp_path / "data", copy_function=shutil.copyfile))


def started(data: Path) -> EmbeddedBroker:
    """A broker at the time of the directory, which lets no offset and no producer expire."""
    broker = EmbeddedBroker(data, config=SETTINGS, fsync=False)
    broker.clock.set(START_MS)
    return broker


@pytest.fixture(params=["clean", "after a crash", "before it was stamped"])
def broker(request: pytest.FixtureRequest, data: Path) -> Iterator[EmbeddedBroker]:
    if request.param != "clean":
        (data / MARKER).unlink()
    if request.param == "before it was stamped":
        (data / META).unlink()
    with started(data) as running:
        yield running


def test_there_is_one_of_each_format() -> None:
    """Also of the newest format: ``support/storage/make_own_golden.py`` writes it."""
    expected = [f"splashdam-format-{number}" for number in range(1, FORMAT + 1)]
    assert expected == FORMATS


def test_it_is_served_and_written_on(data: Path, broker: EmbeddedBroker) -> None:
    """Records, compaction, transactions, groups, options and users; then more of all, and all is sound."""
    servers = broker.bootstrap_servers
    expected = json.loads((data / "served.json").read_text())
    assert summary(servers) == expected
    assert broker.users.names() == [USER]
    with KafkaProducer(bootstrap_servers=servers, transactional_id=WORKER) as producer:
        producer.init_transactions()  # aborts what the old one has left open
        with producer.transaction():
            producer.send(TRANSACTIONAL, b"new", timestamp_ms=START_MS)
    with KafkaProducer(bootstrap_servers=servers) as producer:
        assert producer.send(PLAIN, b"new", timestamp_ms=START_MS).get(timeout=300).offset == 30
        assert producer.send(COMPACTED, b"new", b"key 1", timestamp_ms=START_MS).get(timeout=300).offset == 24
    count, _, committed, _ = expected["topics"][TRANSACTIONAL]
    assert len(served(servers, TRANSACTIONAL)) == count + 1
    assert [record.value for record in served(servers, TRANSACTIONAL, committed=True)][committed:] == [b"new"]
    broker.stop()
    assert read_written_by(DiskFiles(), str(data)).format == FORMAT
    findings = list(verify_root(str(data)))
    for directory in partition_directories(str(data)):
        findings += verify_partition(directory, Totals())
    assert [str(finding) for finding in findings if finding.level is Level.ERROR] == []


def test_options_of_topics_are_kept(data: Path) -> None:
    """They are in a file of ours, which the format of the directory is about."""
    with started(data) as broker:
        broker.stop()
    topics = json.loads((data / "splashdam-topics.json").read_text())["topics"]
    assert topics[COMPACTED]["configs"]["cleanup.policy"] == "compact"
    assert topics[PLAIN]["configs"]["segment.ms"] == "60000"
