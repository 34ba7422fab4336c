"""How the cost of a record grows: ``python benchmarks/scaling.py [--page docs/explanation/scaling.md]``.

CPU time of the producer's process per record, against the common sink, while one thing grows: partitions,
topics, threads, the size of a record. Each point is a fresh process and the least of some rounds: CPU time
leaves out what other programs take, but they slow it down. ``--page`` writes the tables into the page.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
from sink.running import RunningSink, sink_command, temporary_build_dir

from splashdam.cli.measuring.machine import machine_facts
from splashdam.client.producer import KafkaProducer

VOLUME_BYTES = 40_000_000
MOST_RECORDS = 200_000
FEWEST_RECORDS = 20
SMALL = b"x" * 100
START, END = "<!-- made by benchmarks/scaling.py -->", "<!-- end -->"


@attrs.frozen
class Curve:
    """One thing that grows.

    Attributes:
        title: what it is.
        points: its values.
        run: sends a number of records with one of these values.
        work: the number of records at a value.
        sink_partitions: how many partitions the sink's topics have at a value.
    """

    title: str
    points: Sequence[int]
    run: Callable[[KafkaProducer, int, int], None]
    work: Callable[[int], int] = lambda _: MOST_RECORDS
    sink_partitions: Callable[[int], int] = lambda _: 4


def over_partitions(producer: KafkaProducer, partitions: int, count: int) -> None:
    """Each record to the next partition: the worst case for batches."""
    send = producer.send
    for number in range(count):
        send("bench", SMALL, partition=number % partitions)


def over_topics(producer: KafkaProducer, topics: int, count: int) -> None:
    """Each record to the next topic."""
    send, names = producer.send, [f"t{number}" for number in range(topics)]
    for number in range(count):
        send(names[number % topics], SMALL)


def from_threads(producer: KafkaProducer, threads: int, count: int) -> None:
    """All threads share the producer and the records."""

    def work() -> None:
        send = producer.send
        for _ in range(count // threads):
            send("bench", SMALL)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def of_size(producer: KafkaProducer, size: int, count: int) -> None:
    """Larger and larger records."""
    send, value = producer.send, bytes(size)
    for _ in range(count):
        send("bench", value)


CURVES = {
    "partitions": Curve(
        "partitions of a topic, each record to the next one",
        (1, 10, 100, 1_000, 10_000),
        over_partitions,
        sink_partitions=lambda partitions: partitions,
    ),
    "topics": Curve("topics, each record to the next one", (1, 10, 100, 1_000), over_topics),
    "threads": Curve("threads that share a producer", (1, 4, 16, 64), from_threads),
    "bytes": Curve(
        "bytes of a record",
        (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000),
        of_size,
        work=lambda size: max(FEWEST_RECORDS, min(MOST_RECORDS, VOLUME_BYTES // size)),
    ),
}


def measure(name: str, value: int, bootstrap: str) -> None:
    """One point, in this process; prints microseconds of CPU time per record."""
    curve = CURVES[name]
    count = curve.work(value)
    with KafkaProducer(
        bootstrap_servers=bootstrap, linger_ms=5, max_request_size=32 << 20, buffer_memory=128 << 20
    ) as producer:
        curve.run(producer, value, min(count, max(value if name != "bytes" else 1, 1) * 2))  # warm
        producer.flush()
        start = time.process_time()
        curve.run(producer, value, count)
        producer.flush()
        seconds = time.process_time() - start
    print(json.dumps(seconds / count * 1e6))


def measured(name: str, value: int, rounds: int, sink: Sequence[str]) -> float:
    """The least of some rounds."""
    found = []
    for _ in range(rounds):
        partitions = CURVES[name].sink_partitions(value)
        with RunningSink([*sink, str(partitions)], partitions) as running:
            command = [sys.executable, __file__, "--point", name, str(value), running.bootstrap]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(float(json.loads(done.stdout)))
    return min(found)


def table(name: str, costs: dict[int, float]) -> str:
    """A curve as Markdown: cost, and cost by that of the first point; of bytes by KiB as well."""
    first = next(iter(costs.values()))
    by_size = name == "bytes"
    lines = [
        f"**{CURVES[name].title.capitalize()}**",
        "",
        f"| {name} | CPU µs a record | {'CPU µs a KiB' if by_size else 'times the first'} |",
        "|---|---|---|",
    ]
    for value, cost in costs.items():
        other = cost / (value / 1024) if by_size else cost / first
        lines.append(f"| {value:,} | {cost:,.2f} | {other:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--curves", nargs="+", choices=CURVES, default=list(CURVES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--page", type=Path, help="write the tables into this page, between its marks")
    parser.add_argument("--point", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.point:
        name, value, bootstrap = arguments.point
        measure(name, int(value), bootstrap)
        return
    facts = machine_facts(("splashdam",))
    with temporary_build_dir() as build_dir:
        _, sink = sink_command("auto", Path(build_dir))
        tables = []
        for name in arguments.curves:
            costs = {value: measured(name, value, arguments.rounds, sink) for value in CURVES[name].points}
            tables.append(table(name, costs))
            print(tables[-1], end="\n\n", flush=True)
    where = (
        f"{facts['measured_at']}, {facts['processors']} processors ({facts['processor']}), load"
        f" {facts['load_before']} before, {facts['python']}."
    )
    if arguments.page is not None:
        text = arguments.page.read_text()
        head, tail = text[: text.index(START) + len(START)], text[text.index(END) :]
        arguments.page.write_text("\n\n".join([head, where, *tables, tail]))


if __name__ == "__main__":
    main()
