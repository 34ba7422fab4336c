"""Measures splashdam's broker under its clients' load, and a real Kafka if its jars are there.

``python benchmarks/serving.py`` starts each broker as a process, in turns, and measures three parts:

* ``hands``: 200 connections on 1,000 partitions, each a producer that waits for every answer. The figures are
  the time to the first answer and to create the topics, requests per second, waits, the time to the first
  answer after a stop in order and a new start, CPU time while idle, and the memory of the process.
* ``ingest``: the broker's CPU time for batches of 1 MiB, by codec (``broker/ingest.py``; ours alone).
* ``stalls``: how long a client waits while another one sends expensive requests (``broker/stalls.py``).

``make kafka`` fetches Kafka's jars; ``KAFKA_JARS`` names another folder of jars.
"""

from __future__ import annotations

import argparse
import selectors
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import checked
from broker import ingest, stalls
from broker.raw_client import batch_of, read_frame
from broker.running import (
    SETTLING_SECONDS,
    Address,
    Start,
    Topic,
    await_answer,
    contestants,
    cpu_seconds,
    create_topics,
    default_jars,
    memory_mib,
)

from splashdam.wire.header import decode_response, encode_request
from splashdam.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

PARTITIONS_PER_TOPIC = 10
RECORD_BYTES = 100
IDLE_SECONDS = 4.0
PRODUCE_VERSION = 9


class Served(NamedTuple):
    """The figures of one broker in one round."""

    ready_ms: float
    topics_ms: float
    requests_per_s: float
    p50_ms: float
    p99_ms: float
    idle_mib: float
    busy_mib: float
    restart_ms: float
    idle_cpu_percent: float


def topics_of(partitions: int) -> list[Topic]:
    """Return topics of ten partitions each, with ``partitions`` in all."""
    return [Topic(f"t{number}", PARTITIONS_PER_TOPIC) for number in range(partitions // PARTITIONS_PER_TOPIC)]


def produce_frames(partitions: int) -> list[bytes]:
    """Return a request with one record for each partition."""
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
    """Connections; each sends a record, waits for the answer, and continues with the next partition."""

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
        """Send for some seconds, and return the answers per second."""
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
        """Close every connection."""
        for connection in self._next:
            connection.close()
        self._selector.close()


def check(frame: bytes) -> None:
    """End the program if the answer is an error."""
    _, answer = decode_response(frame, ProduceResponse, PRODUCE_VERSION)
    code = answer.responses[0].partition_responses[0].error_code
    if code:
        raise SystemExit(f"a produce request was refused with error {code}")


def measure(start: Start, home: Path, connections: int, partitions: int, seconds: float) -> Served:
    """Measure one broker for one round."""
    starting = start(home)
    began = time.perf_counter()
    with starting as running:
        await_answer(running.address)
        ready = time.perf_counter()
        idle_mib = memory_mib(running.pid)
        create_topics(running.address, topics_of(partitions))
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


def hands(options: argparse.Namespace) -> None:
    """Measure the brokers with many clients, and print the figures."""
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


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "hands": hands,
    "ingest": lambda options: ingest.run(options.rounds, options.requests, options.other),
    "stalls": lambda options: stalls.run(contestants(options.jars), options.rounds, options.seconds),
}


def main() -> None:
    """Measure the chosen parts, and print their figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--parts", nargs="+", choices=list(PARTS), default=list(PARTS), help="parts to measure (all)"
    )
    parser.add_argument("--connections", type=int, default=200, help="connections of hands (200)")
    parser.add_argument("--partitions", type=int, default=1000, help="partitions of hands (1000)")
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="length of hands, and of stalls beside each stranger (5)"
    )
    parser.add_argument(
        "--requests", type=int, default=100, help="batches of ingest, for each codec and size (100)"
    )
    parser.add_argument("--other", help="interpreter of another splashdam, to measure its ingest as well")
    parser.add_argument("--rounds", type=checked.rounds, default=3, help="rounds of each part (3)")
    parser.add_argument("--jars", type=Path, default=default_jars(), help="folder with Kafka's jars")
    options = parser.parse_args()
    for name in options.parts:
        PARTS[name](options)


if __name__ == "__main__":
    main()
