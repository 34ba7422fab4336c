"""A directory that a real Kafka wrote opens here, serves the same records, and goes back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TypeAlias

import pytest
from support.kafka import kafka_old_formats
from support.kafka.kafka_jars import VERSIONS, KafkaBroker
from support.kafka.kafka_reading import make_topic, served
from support.kafka.kafka_writing import BROKER_SETTINGS, INDEX_INTERVAL_BYTES, TOPICS, write_everything
from support.kafka.make_golden import GOLDEN, digest
from support.storage.logs import log_files, open_log

from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.record.reader import Record
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.inspect.verify import Level, Totals, verify_partition
from splashdam.storage.settings import LogSettings

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
Served: TypeAlias = dict[tuple[str, bool], list[Record]]
Written: TypeAlias = tuple[KafkaBroker, Served]


def everything_served(servers: str) -> Served:
    """What all topics give a consumer, read uncommitted and committed."""
    return {
        (topic, committed): served(servers, topic, committed=committed)
        for topic in TOPICS
        for committed in (False, True)
    }


@pytest.fixture(scope="module", params=VERSIONS)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A broker that has written everything and was stopped, and what it served before."""
    broker = KafkaBroker(request.param, tmp_path_factory.mktemp("kafka"), BROKER_SETTINGS)
    broker.start()
    try:
        open_transaction = write_everything(broker)
        records = everything_served(broker.bootstrap_servers)
    finally:
        broker.stop()
    del open_transaction
    return broker, records


def test_indexes_made_of_kafkas_log_files_are_kafkas(written: Written, tmp_path: Path) -> None:
    """The .log files alone give offset, time and transaction indexes byte for byte."""
    broker, _ = written
    compared = 0
    for topic in TOPICS:
        theirs, rebuilt = broker.data / f"{topic}-0", tmp_path / f"{topic}-0"
        rebuilt.mkdir()
        for path in theirs.glob("*.log"):
            shutil.copy(path, rebuilt)
        settings = LogSettings(index_interval_bytes=INDEX_INTERVAL_BYTES)
        open_log(DiskFiles(), str(rebuilt), settings=settings).close()
        for name, data in log_files(theirs).items():
            if name.endswith((".index", ".timeindex", ".txnindex")):
                assert (rebuilt / name).read_bytes().hex(" ", 8) == data.hex(" ", 8)
                compared += 1
    assert compared > 25


def test_kafkas_directory_here_and_back(written: Written, tmp_path: Path) -> None:
    """Codecs, segments, epochs, transactions, a compacted topic: the same records here and there again."""
    broker, records = written
    kafkas, ours = tmp_path / "kafkas", tmp_path / "ours"
    shutil.copytree(broker.data, ours)
    with EmbeddedBroker(ours) as embedded:
        assert everything_served(embedded.bootstrap_servers) == records
        with KafkaProducer(bootstrap_servers=embedded.bootstrap_servers) as producer:
            for topic in TOPICS:
                # As old as the last record: a newer one rolls the active segment of "compacted", and
                # Kafka's cleaner then removes records as soon as the broker is up again.
                last_ms = records[topic, False][-1].timestamp_ms
                producer.send(topic, b"written here", key=b"key", timestamp_ms=last_ms).get(timeout=300)
    shutil.move(broker.data, kafkas)
    shutil.copytree(ours, broker.data)
    broker.start()
    try:
        check_what_it_serves_now(broker.bootstrap_servers, records)
    finally:
        broker.stop()
        shutil.rmtree(broker.data)
        shutil.move(kafkas, broker.data)  # other tests look at what Kafka wrote


def check_what_it_serves_now(servers: str, records: Served) -> None:
    """What it served before, and the record that was written here."""
    for (topic, committed), before in records.items():
        now = served(servers, topic, committed=committed)
        if (topic, committed) == ("transactions", True):  # the open transaction still holds it back
            assert now == before
        else:
            assert (now[:-1], now[-1].value) == (before, b"written here")


def test_a_killed_kafkas_directory(broker: KafkaBroker, tmp_path: Path) -> None:
    """No marker, indexes preallocated with zeros: verified without an error, opened, served the same."""
    make_topic(broker.bootstrap_servers, "killed")
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, batch_size=2_000) as producer:
        for number in range(3_000):
            producer.send("killed", b"value %d" % number)
    before = served(broker.bootstrap_servers, "killed")
    assert len(before) == 3_000
    broker.stop(kill=True)
    ours = tmp_path / "ours"
    shutil.copytree(broker.data, ours)
    findings = list(verify_partition(str(ours / "killed-0"), Totals(), contiguous=True))
    assert [finding.text for finding in findings if finding.level is Level.ERROR] == []
    assert sum("preallocated zero bytes" in finding.text for finding in findings) == 2
    with EmbeddedBroker(ours) as embedded:
        assert served(embedded.bootstrap_servers, "killed") == before


@pytest.mark.parametrize("topic", kafka_old_formats.TOPICS)
def test_a_real_broker_of_today_reads_formats_0_and_1(
    broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    """In directories that a 3.9 beside ZooKeeper wrote; files that it rebuilds there equal ours."""
    golden = GOLDEN / f"kafka-{kafka_old_formats.VERSION}"
    summary = json.loads((golden / "served.json").read_text())[topic]
    make_topic(broker.bootstrap_servers, "old", {"index.interval.bytes": str(INDEX_INTERVAL_BYTES)})
    broker.stop()
    directory = broker.data / "old-0"
    ours = tmp_path / "ours"
    ours.mkdir()
    for path in directory.glob("0*"):
        path.unlink()
    for target in (directory, ours):
        shutil.copy(golden / f"{topic}-0" / f"{0:020d}.log", target)
    (broker.data / ".kafka_cleanshutdown").unlink()
    broker.start()
    records = served(broker.bootstrap_servers, "old")
    assert (len(records), digest(records)) == (summary["records"], summary["digest"])
    broker.stop()
    open_log(DiskFiles(), str(ours), settings=LogSettings(index_interval_bytes=INDEX_INTERVAL_BYTES)).close()
    for suffix in (".log", ".index", ".timeindex"):
        name = f"{0:020d}{suffix}"
        assert (directory / name).read_bytes() == (ours / name).read_bytes(), name
