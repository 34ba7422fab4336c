"""Runs brokers as processes, splashdam's and a real Kafka; creates topics, and measures memory and CPU."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trio

from broker.raw_client import read_frame
from splashdam.net.admin.topics import create_topic
from splashdam.net.clock import SystemClock
from splashdam.net.cluster.cluster_client import ClusterClient, open_cluster_client
from splashdam.net.connect import TcpConnect
from splashdam.wire.header import encode_request
from splashdam.wire.messages.api_versions import ApiVersionsRequest

SETTLING_SECONDS = 1.0
_PATIENCE_SECONDS = 60.0
_WHOLE_PROCESS = 2
"""CPUCLOCK_SCHED, by which clock_getcpuclockid(3) names the clock of a process with all its threads."""

Address = tuple[str, int]


class Running(NamedTuple):
    """A broker's process."""

    address: Address
    pid: int


Start = Callable[[Path], AbstractContextManager[Running]]


class Topic(NamedTuple):
    """A topic to create."""

    name: str
    partitions: int = 1
    configs: Mapping[str, str] = {}


@contextmanager
def our_broker(home: Path, python: str = sys.executable) -> Iterator[Running]:
    """``splashdam broker``, as it is installed for an interpreter."""
    command = [python, "-m", "splashdam.cli", "broker", "--data", str(home / "data"), "--port", "0"]
    # Without bytecode files Python would compile the broker at each start.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            host, _, port = process.stdout.readline().strip().removeprefix("listening on ").rpartition(":")
            yield Running((host, int(port)), process.pid)
        finally:
            process.terminate()


def real_broker(version: str, home: Path) -> AbstractContextManager[Running]:
    """Apache Kafka, one node; its directory is formatted before it is started."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    from support.kafka.kafka_jars import KafkaBroker

    broker = KafkaBroker(version, home)
    broker.format()
    return _running(broker)


@contextmanager
def _running(broker: Any) -> Iterator[Running]:
    broker.start()
    try:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        yield Running((host, int(port)), broker.pid)
    finally:
        broker.stop()


def await_answer(address: Address) -> None:
    """Wait until the broker answers ApiVersions."""
    frame = b"".join(encode_request(ApiVersionsRequest(), version=0, correlation_id=1, client_id="bench"))
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        try:
            with socket.create_connection(address) as connection:
                connection.sendall(frame)
                read_frame(connection)
                return
        except (ConnectionError, SystemExit):
            time.sleep(0.005)
    raise SystemExit(f"nobody answers at {address}")


def create_topics(address: Address, topics: Sequence[Topic]) -> None:
    """Create topics one after the other, and wait until all partitions have leaders."""
    wanted = sum(each.partitions for each in topics)

    async def create(client: ClusterClient) -> None:
        for name, partitions, configs in topics:
            await create_topic(client, name, partitions=partitions, replication_factor=1, configs=configs)
        while True:
            found = (await client.cluster([each.name for each in topics])).topics
            if sum(each.leader >= 0 for topic in found.values() for each in topic.partitions) >= wanted:
                return
            await trio.sleep(0.05)

    async def run() -> None:
        async with open_cluster_client([address], connect=TcpConnect(), clock=SystemClock()) as client:
            await create(client)

    trio.run(run)
    time.sleep(SETTLING_SECONDS)  # a real broker's metadata may be ahead of its logs


def memory_mib(pid: int) -> float:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far."""
    return time.clock_gettime(~pid << 3 | _WHOLE_PROCESS)


def default_jars() -> Path:
    """Return the folder of Kafka's jars: ``KAFKA_JARS``, or where ``make kafka`` puts them."""
    return Path(os.environ.get("KAFKA_JARS", Path.home() / ".cache" / "splashdam" / "kafka"))


def contestants(jars: Path) -> dict[str, Start]:
    """Return splashdam's broker, and the newest Kafka whose jars are there."""
    found: dict[str, Start] = {"splashdam": our_broker}
    versions = sorted(each.name for each in jars.glob("[0-9]*")) if jars.is_dir() else []
    if versions:
        os.environ.setdefault("KAFKA_JARS", str(jars))
        found[f"Kafka {versions[-1]}"] = lambda home: real_broker(versions[-1], home)
    else:
        print(
            f"without a real Kafka: there are no jars in {jars}, `make kafka` fetches them", file=sys.stderr
        )
    return found
