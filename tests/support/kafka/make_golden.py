"""Makes tests/golden anew: small directories that a real Kafka wrote, and what it served from them.

    make kafka                      # fetches the jars
    KAFKA_JARS=~/.cache/splashdam/kafka PYTHONPATH=tests .venv/bin/python -m support.kafka.make_golden

Every run gives other bytes (times, ids, producer ids), so `served.json` is made with the directories.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from splashdam.record.reader import Record
from support.kafka import kafka_offsets, kafka_old_formats, kafka_states, kafka_writing
from support.kafka.kafka_jars import KafkaBroker
from support.kafka.kafka_reading import served

GOLDEN = Path(__file__).parents[2] / "golden"
NEW_VERSION = "4.3.1"
_ROOT_FILES = ("meta.properties", ".kafka_cleanshutdown", "cleaner-offset-checkpoint",
               "log-start-offset-checkpoint", "recovery-point-offset-checkpoint",
               "replication-offset-checkpoint")  # fmt: skip


def digest(records: Iterable[Record]) -> str:
    """What records are, in few bytes. Without a timestamp (format 0) librdkafka says 0."""
    found = hashlib.sha256()
    for record in records:
        found.update(repr((record[0], max(record[1], 0), *record[2:])).encode())
    return found.hexdigest()


def _summary(servers: str, topic: str) -> dict[str, int | str]:
    uncommitted, committed = served(servers, topic), served(servers, topic, committed=True)
    return {
        "records": len(uncommitted),
        "digest": digest(uncommitted),
        "committed_records": len(committed),
        "committed_digest": digest(committed),
    }


def _keep(data: Path, version: str, topics: Iterable[str], summaries: object) -> None:
    target = GOLDEN / f"kafka-{version}"
    shutil.rmtree(target, ignore_errors=True)
    for topic in topics:
        skipped = shutil.ignore_patterns("*.deleted")
        shutil.copytree(data / f"{topic}-0", target / f"{topic}-0", ignore=skipped)
    for name in _ROOT_FILES:
        shutil.copy(data / name, target)
    (target / "served.json").write_text(json.dumps(summaries, indent=2) + "\n")


def _make_new(home: Path) -> None:
    broker = KafkaBroker(NEW_VERSION, home, kafka_writing.BROKER_SETTINGS)
    broker.start()
    try:
        open_transaction = kafka_writing.write_everything(broker)
        summaries = {topic: _summary(broker.bootstrap_servers, topic) for topic in kafka_writing.TOPICS}
    finally:
        broker.stop()
    del open_transaction
    _keep(broker.data, NEW_VERSION, kafka_writing.TOPICS, summaries)


def _make_offsets(home: Path) -> None:
    broker = KafkaBroker(NEW_VERSION, home)
    broker.start()
    try:
        open_transaction = kafka_offsets.write_offsets(broker.bootstrap_servers)
        answered = kafka_offsets.answered(broker.bootstrap_servers)
    finally:
        broker.stop()
    del open_transaction
    target = GOLDEN / f"offsets-{NEW_VERSION}"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(broker.data / "__consumer_offsets-0", target / "__consumer_offsets-0")
    shutil.copy(broker.data / "meta.properties", target)
    (target / "offsets.json").write_text(json.dumps(answered, indent=2) + "\n")


def _make_states(home: Path) -> None:
    broker = KafkaBroker(NEW_VERSION, home)
    broker.start()
    try:
        producers = kafka_states.write_states(broker.bootstrap_servers)
    finally:
        broker.stop()
    del producers
    source = broker.data / "__transaction_state-0"
    target = GOLDEN / f"states-{NEW_VERSION}"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target / source.name)
    shutil.copy(broker.data / "meta.properties", target)
    states = kafka_states.dumped(NEW_VERSION, source.glob("*.log"))
    (target / "states.json").write_text(json.dumps(states, indent=1) + "\n")


def _make_old(home: Path) -> None:
    with kafka_old_formats.zookeeper(home / "zookeeper") as address:
        broker = kafka_old_formats.OldBroker(home / "kafka", address)
        broker.start()
        try:
            kafka_old_formats.write_old_formats(broker.bootstrap_servers)
            topics = kafka_old_formats.TOPICS
            summaries = {topic: _summary(broker.bootstrap_servers, topic) for topic in topics}
        finally:
            broker.stop()
    _keep(broker.data, kafka_old_formats.VERSION, kafka_old_formats.TOPICS, summaries)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        _make_new(Path(directory, "new"))
        _make_offsets(Path(directory, "offsets"))
        _make_states(Path(directory, "states"))
        _make_old(Path(directory, "old"))
