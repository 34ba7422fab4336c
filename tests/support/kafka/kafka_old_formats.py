"""Message formats 0 and 1, written by a real Kafka 3.9: the last that can, and only beside a ZooKeeper."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import confluent_kafka

from support.kafka.kafka_jars import START_SECONDS, KafkaBroker, classpath
from support.kafka.kafka_reading import make_topic
from support.running.ports import free_port

VERSION = "3.9.2"
START_MS = 1_795_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4")
TOPICS = {
    "format0": {"message.format.version": "0.9.0"},
    "format1": {"message.format.version": "0.10.0"},
    "format1appended": {"message.format.version": "0.10.0", "message.timestamp.type": "LogAppendTime"},
}
_SMALL = {"index.interval.bytes": "512", "segment.index.bytes": "4096", "retention.ms": "-1"}
_WAIT_SECONDS = 30


class OldBroker(KafkaBroker):
    """A broker that still speaks of formats before 2: its inter-broker protocol is older than 3.0."""

    def __init__(self, home: Path, zookeeper: str) -> None:
        super().__init__(VERSION, home)
        self._zookeeper = zookeeper

    def _format(self, properties: Path) -> None:
        """Nothing to format: who the cluster is stands in ZooKeeper."""

    def _properties(self) -> dict[str, str]:
        port = free_port()
        self.bootstrap_servers = f"127.0.0.1:{port}"
        return {
            "broker.id": "1",
            "zookeeper.connect": self._zookeeper,
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "log.dirs": str(self.data),
            "inter.broker.protocol.version": "2.8",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
        }


@contextmanager
def zookeeper(home: Path) -> Iterator[str]:
    """A ZooKeeper on loopback; gives its address."""
    port = free_port()
    home.mkdir(parents=True)
    with (home / "zookeeper.log").open("ab") as log:
        process = subprocess.Popen(
            ["java", "-Xmx256m", "-Dzookeeper.admin.enableServer=false", "-cp", classpath(VERSION),
             "org.apache.zookeeper.server.ZooKeeperServerMain", str(port), str(home / "data")],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        _wait_for_port(port)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def _wait_for_port(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise AssertionError(f"nobody listens on {port}")


def write_old_formats(servers: str) -> None:
    """The same records to each topic, in every codec: ten to a wrapper."""
    for topic, configs in TOPICS.items():
        make_topic(servers, topic, {**_SMALL, **configs})
        for number, codec in enumerate(CODECS):
            _send(servers, topic, codec, number * 100)


def _send(servers: str, topic: str, codec: str, first: int) -> None:
    settings = {"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 20, "log_level": 0}
    producer = confluent_kafka.Producer(settings)
    for number in range(first, first + 30):
        key = b"key %d" % (number % 7) if number % 5 else None
        value = b"value %d " % number * 4 if number % 9 else None
        producer.produce(topic, value, key, timestamp=START_MS + number)
        if number % 10 == 9:
            assert producer.flush(_WAIT_SECONDS) == 0
