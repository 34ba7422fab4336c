"""A broker under many hands: 200 connections on 1,000 partitions, ours and, where its jars are, a real Kafka.

``python benchmarks/serving.py`` starts each broker as a process, in turns, and prints how long each took to
answer its first request and to create the topics, what 200 producers that wait for every answer got done
together, how long they waited, how long the broker took to answer after it was stopped in order and started
again, what it does while nobody asks, and the memory of the process. ``make kafka`` fetches Kafka's jars.
"""

from __future__ import annotations

import argparse
import os
import selectors
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trio
from talk import batch_of, read_frame

from splashdam.net.admin.topics import create_topic
from splashdam.net.clock import SystemClock
from splashdam.net.cluster_client import ClusterClient, open_cluster_client
from splashdam.net.connect import TcpConnect
from splashdam.wire.header import decode_response, encode_request
from splashdam.wire.messages.api_versions import ApiVersionsRequest
from splashdam.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

PARTITIONS_PER_TOPIC = 10
RECORD_BYTES = 100
SETTLING_SECONDS = 1.0
IDLE_SECONDS = 4.0
PRODUCE_VERSION = 9
_PATIENCE_SECONDS = 60.0

Address = tuple[str, int]


class Running(NamedTuple):
    """A broker's process."""

    address: Address
    pid: int


Start = Callable[[Path], AbstractContextManager[Running]]


class Served(NamedTuple):
    """What one broker did in one round; times in ms, memory in MiB."""

    ready_ms: float
    topics_ms: float
    requests_per_s: float
    p50_ms: float
    p99_ms: float
    idle_mib: float
    busy_mib: float
    restart_ms: float
    idle_cpu_percent: float


@contextmanager
def our_broker(home: Path) -> Iterator[Running]:
    """``splashdam broker``."""
    import subprocess

    command = [sys.executable, "-m", "splashdam.cli", "broker", "--data", str(home / "data"), "--port", "0"]
    # Without bytecode it would compile itself at each start.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        host, _, port = process.stdout.readline().strip().removeprefix("listening on ").rpartition(":")
        yield Running((host, int(port)), process.pid)
    finally:
        process.terminate()
        process.wait()


def real_broker(version: str, home: Path) -> AbstractContextManager[Running]:
    """Apache Kafka, one node; its directory is formatted before it is started."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from kafka_jars import KafkaBroker

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
    """Returns when the broker has answered ApiVersions."""
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


def create_topics(address: Address, partitions: int) -> None:
    """Topics of ten partitions, asked for one after the other; returns when all have their leaders."""

    async def create(client: ClusterClient) -> None:
        names = [f"t{number}" for number in range(partitions // PARTITIONS_PER_TOPIC)]
        for name in names:
            await create_topic(client, name, partitions=PARTITIONS_PER_TOPIC, replication_factor=1)
        while True:
            topics = (await client.cluster(names)).topics
            if sum(each.leader >= 0 for topic in topics.values() for each in topic.partitions) >= partitions:
                return
            await trio.sleep(0.05)

    async def run() -> None:
        async with open_cluster_client([address], connect=TcpConnect(), clock=SystemClock()) as client:
            await create(client)

    trio.run(run)
    time.sleep(SETTLING_SECONDS)  # a real broker's metadata may be ahead of its logs


def produce_frames(partitions: int) -> list[bytes]:
    """One request for each partition, with a record."""
    batch = batch_of(1, RECORD_BYTES)
    frames = []
    for number in range(partitions):
        topic, partition = divmod(number, PARTITIONS_PER_TOPIC)
        data = [PartitionProduceData(index=partition, records=batch)]
        request = ProduceRequest(
            acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=f"t{topic}", partition_data=data)]
        )
        frames.append(
            b"".join(encode_request(request, version=PRODUCE_VERSION, correlation_id=1, client_id="bench"))
        )
    return frames


class Crowd:
    """Connections of which each sends a record, waits for the answer, and goes on to the next partition."""

    def __init__(self, address: Address, connections: int, frames: Sequence[bytes]) -> None:
        self._frames = frames
        self._selector = selectors.DefaultSelector()
        self._next: dict[socket.socket, int] = {}
        self._sent_at: dict[socket.socket, float] = {}
        self.waited_ms: list[float] = []
        for number in range(connections):
            connection = socket.create_connection(address)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(connection, selectors.EVENT_READ)
            self._next[connection] = number * len(frames) // connections

    def run(self, seconds: float) -> float:
        """Goes on for so long; answers per second."""
        for connection in self._next:
            self._send(connection)
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            for key, _ in self._selector.select(1):
                assert isinstance(key.fileobj, socket.socket)
                self._answered(key.fileobj)
        return len(self.waited_ms) / (time.perf_counter() - began)

    def _send(self, connection: socket.socket) -> None:
        number = self._next[connection]
        self._next[connection] = (number + 1) % len(self._frames)
        self._sent_at[connection] = time.perf_counter()
        connection.sendall(self._frames[number])

    def _answered(self, connection: socket.socket) -> None:
        frame = read_frame(connection)
        self.waited_ms.append((time.perf_counter() - self._sent_at[connection]) * 1000)
        if len(self.waited_ms) % 1000 == 1:
            check(frame)
        self._send(connection)

    def close(self) -> None:
        """Closes every connection."""
        for connection in self._next:
            connection.close()
        self._selector.close()


def check(frame: bytes) -> None:
    """Ends the program if the answer is an error."""
    _, answer = decode_response(frame, ProduceResponse, PRODUCE_VERSION)
    code = answer.responses[0].partition_responses[0].error_code
    if code:
        raise SystemExit(f"a produce request was refused with error {code}")


def memory_mib(pid: int) -> float:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(start: Start, home: Path, connections: int, partitions: int, seconds: float) -> Served:
    """One round with one broker."""
    starting = start(home)
    began = time.perf_counter()
    with starting as running:
        await_answer(running.address)
        ready = time.perf_counter()
        idle_mib = memory_mib(running.pid)
        create_topics(running.address, partitions)
        created = time.perf_counter() - SETTLING_SECONDS
        crowd = Crowd(running.address, connections, produce_frames(partitions))
        try:
            rate = crowd.run(seconds)
        finally:
            crowd.close()
        busy_mib = memory_mib(running.pid)
    starting = start(home)
    stopped = time.perf_counter()
    with starting as running:
        await_answer(running.address)
        restarted = time.perf_counter()
        time.sleep(SETTLING_SECONDS)
        spent = cpu_seconds(running.pid)
        time.sleep(IDLE_SECONDS)
        spent = cpu_seconds(running.pid) - spent
    waited = statistics.quantiles(crowd.waited_ms, n=100)
    return Served(
        (ready - began) * 1000,
        (created - ready) * 1000,
        rate,
        waited[49],
        waited[98],
        idle_mib,
        busy_mib,
        (restarted - stopped) * 1000,
        spent / IDLE_SECONDS * 100,
    )


def contestants(jars: Path) -> dict[str, Start]:
    """Ours, and the newest Kafka whose jars are there."""
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


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=5.0, help="of producing, each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jars", type=Path, default=Path.home() / ".cache" / "splashdam" / "kafka")
    options = parser.parse_args()
    rounds: dict[str, list[Served]] = {}
    for _ in range(options.rounds):
        for name, start in contestants(options.jars).items():
            with tempfile.TemporaryDirectory() as home:
                done = measure(start, Path(home), options.connections, options.partitions, options.seconds)
            rounds.setdefault(name, []).append(done)
    print(f"{options.connections} connections, {options.partitions} partitions; medians of {options.rounds}")
    print(f"{'':20}" + "".join(f"{name:>18}" for name in rounds))
    for field in Served._fields:
        medians = (statistics.median(getattr(each, field) for each in done) for done in rounds.values())
        print(f"{field:20}" + "".join(f"{each:18,.2f}" for each in medians))


if __name__ == "__main__":
    main()
