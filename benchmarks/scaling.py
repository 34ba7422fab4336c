"""How the cost of a record grows: ``python benchmarks/scaling.py [--page docs/explanation/scaling.md]``.

Measures the CPU time of the producer's process per record, against the common sink, while one number grows:
partitions, topics, threads, bytes of a record. Each point is the least of several rounds, each in a fresh
process: CPU time does not count other programs, but they raise it. ``--page`` writes the tables to the page.
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
import checked
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
    """One number that grows.

    Attributes:
        title: what it counts.
        points: its values.
        run: sends a number of records at one of these values.
        work: returns the number of records at a value.
        sink_partitions: returns the number of partitions of the sink's topics at a value.
    """

    title: str
    points: Sequence[int]
    run: Callable[[KafkaProducer, int, int], None]
    work: Callable[[int], int] = lambda _: MOST_RECORDS
    sink_partitions: Callable[[int], int] = lambda _: 4


def over_partitions(producer: KafkaProducer, partitions: int, count: int) -> None:
    """Send each record to the next partition: the worst case for batches."""
    send = producer.send
    for number in range(count):
        send("bench", SMALL, partition=number % partitions)


def over_topics(producer: KafkaProducer, topics: int, count: int) -> None:
    """Send each record to the next topic."""
    send, names = producer.send, [f"t{number}" for number in range(topics)]
    for number in range(count):
        send(names[number % topics], SMALL)


def from_threads(producer: KafkaProducer, threads: int, count: int) -> None:
    """Send from several threads; they share the producer and the records."""

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
    """Send records of this size."""
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
    """Measure one point in this process; print the microseconds of CPU time per record."""
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
    """Return the least of several rounds."""
    found = []
    for _ in range(rounds):
        partitions = CURVES[name].sink_partitions(value)
        with RunningSink([*sink, str(partitions)], partitions) as running:
            command = [sys.executable, __file__, "--point", name, str(value), running.bootstrap]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(float(json.loads(done.stdout)))
    return min(found)


def table(name: str, costs: dict[int, float]) -> str:
    """Return a curve as a Markdown table: cost per record, and its ratio to the first point or per KiB."""
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
    parser.add_argument(
        "--curves", nargs="+", choices=CURVES, default=list(CURVES), help="curves to measure (all)"
    )
    parser.add_argument("--rounds", type=checked.rounds, default=3, help="rounds of each point (3)")
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
