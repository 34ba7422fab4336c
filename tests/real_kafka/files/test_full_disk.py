"""What a full disk means to a real Kafka: the facts that docs/decisions/storage.md measures ours against."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.kafka.kafka_jars import VERSIONS, KafkaBroker

pytestmark = pytest.mark.kafka


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB."""
    path = tmp_path / "small"
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(path)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("only root may mount a file system that gets full")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def sent(producer: Producer, value: bytes, partition: int) -> int:
    """One record, alone in its batch; the code that it was answered with."""
    codes: list[int] = []
    producer.produce(
        "t",
        value,
        partition=partition,
        on_delivery=lambda error, _: codes.append(error.code() if error else 0),
    )
    producer.flush(20)
    return codes[0]


def leaders(admin: AdminClient) -> dict[int, int]:
    """Who leads which partition."""
    return {
        each.id: each.leader for each in admin.list_topics("t", timeout=10).topics["t"].partitions.values()
    }


@pytest.mark.parametrize("version", VERSIONS[:1])
def test_a_full_directory_answers_56_and_goes_offline(version: str, tmp_path: Path, small_disk: Path) -> None:
    """56 for the batch that does not fit; then nobody leads the partition, and other directories go on."""
    home = tmp_path / "kafka"
    logs = {"log.dirs": f"{small_disk},{home}/data", "metadata.log.dir": f"{home}/data"}
    broker = KafkaBroker(version, home, logs)
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all", "retries": 0})
        assert [sent(producer, b"x", number) for number in (0, 1)] == [0, 0]
        full = 0 if (small_disk / "t-0").is_dir() else 1
        codes = (sent(producer, os.urandom(900_000), full) for _ in range(40))
        assert next(code for code in codes if code) == KafkaError.KAFKA_STORAGE_ERROR == 56
        assert sent(producer, b"x", 1 - full) == 0
        seen = (leaders(admin) for _ in range(200))  # the controller takes a moment to hear of it
        assert {full: -1, 1 - full: 1} in seen
    finally:
        broker.stop(kill=True)


@pytest.mark.parametrize("version", VERSIONS[:1])
def test_room_made_later_changes_nothing_before_the_next_start(
    version: str, tmp_path: Path, small_disk: Path
) -> None:
    """The directory stays offline though it has room again; after a start it takes records as before."""
    home = tmp_path / "kafka"
    logs = {"log.dirs": f"{small_disk},{home}/data", "metadata.log.dir": f"{home}/data"}
    filler = small_disk / "filler"
    filler.write_bytes(bytes(12 << 20))
    broker = KafkaBroker(version, home, logs)
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result()
        options = {"bootstrap.servers": broker.bootstrap_servers, "acks": "all", "retries": 0}
        producer = Producer({**options, "message.timeout.ms": 5_000})
        assert [sent(producer, b"x", number) for number in (0, 1)] == [0, 0]
        full = 0 if (small_disk / "t-0").is_dir() else 1
        codes = (sent(producer, os.urandom(900_000), full) for _ in range(40))
        assert next(code for code in codes if code) == KafkaError.KAFKA_STORAGE_ERROR
        seen = (leaders(admin) for _ in range(200))
        assert {full: -1, 1 - full: 1} in seen
        filler.unlink()
        assert shutil.disk_usage(small_disk).free > 10 << 20
        assert sent(producer, b"y", full) != 0
        assert leaders(admin)[full] == -1
        assert sent(producer, b"y", 1 - full) == 0
        broker.stop()
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert {full: 1, 1 - full: 1} in (leaders(admin) for _ in range(200))
        assert sent(Producer({"bootstrap.servers": broker.bootstrap_servers}), b"y", full) == 0
    finally:
        broker.stop(kill=True)
