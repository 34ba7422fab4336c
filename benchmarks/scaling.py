"""How the cost of a record grows: ``python benchmarks/scaling.py [--page docs/explanation/scaling.md]``.

Measures the CPU time of the producer's process per record, against the common sink, while one number grows:
partitions, topics, threads, bytes of a record. Then that of a broker per request while its connections grow
(``broker/connections.py``), and that of a log per call while its segments grow (``broker/log_sizes.py``).

Each point is the least of several rounds, each in a fresh process: CPU time does not count other programs,
but they raise it. Brokers and logs of all sizes take turns in each round. Of the brokers the table has the
medians, and their ratio to the first one of the same round. ``--page`` writes the tables to the page.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import checked
from broker import connections, log_sizes
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


CONNECTIONS = (1, 10, 100, 1_000)
LOG_GIB = (1, 10, 100)
LOG_CALLS = {
    "opening": "opened, ms",
    "first fetch": "first fetch from a segment, µs",
    "fetch": "fetch, µs",
    "first search": "first search by time, ms",
    "search": "search by time, ms",
    "append": "append, µs",
}
"""The calls of `log_sizes`, and the heads of their columns."""


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


def producers(name: str, rounds: int, sink: Sequence[str]) -> str:
    """Measure a producer's curve; return it as a table."""
    return table(name, {value: measured(name, value, rounds, sink) for value in CURVES[name].points})


def of_connections(points: Sequence[int], rounds: int) -> str:
    """Measure brokers with connections that take turns; return their curve as a table."""
    lines = [
        "**Connections that are open, and take turns with Produce requests of one record**",
        "",
        "| connections | broker's CPU µs a request | times the first | idle: CPU ms a second | memory, MiB |",
        "|---|---|---|---|---|",
    ]
    done = [[connections.measure(value) for value in points] for _ in range(rounds)]
    for value, found in zip(points, zip(*done, strict=True), strict=True):
        request_us, idle_ms, memory_mib = map(statistics.median, zip(*found, strict=True))
        times = statistics.median(
            one.request_us / each[0].request_us for one, each in zip(found, done, strict=True)
        )
        lines.append(f"| {value:,} | {request_us:.1f} | {times:.2f} | {idle_ms:.2f} | {memory_mib:.0f} |")
    return "\n".join(lines)


def measure_log(segments: int, batches: int) -> None:
    """Measure one log in this process; print the costs of its calls."""
    print(
        json.dumps({name: attrs.astuple(cost) for name, cost in log_sizes.measure(segments, batches).items()})
    )


def _log_in_a_process(segments: int, batches: int) -> dict[str, list[float]]:
    command = [sys.executable, __file__, "--log", str(segments), str(batches)]
    found: dict[str, list[float]] = json.loads(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )
    return found


def of_log_sizes(points: Sequence[int], rounds: int, batches: int = log_sizes.BATCHES_PER_GIB) -> str:
    """Measure logs with this number of closed segments; return CPU times and work as two tables."""
    names = list(LOG_CALLS)
    times = [
        "**Size of a log in segments of 1 GiB: CPU time of a call**",
        "",
        f"| GiB | {' | '.join(LOG_CALLS.values())} |",
        f"|{'---|' * (len(names) + 1)}",
    ]
    works = [
        "**The same calls: files looked at, and KiB read**",
        "",
        f"| GiB | {' | '.join(head.rpartition(',')[0] for head in LOG_CALLS.values())} |",
        f"|{'---|' * (len(names) + 1)}",
    ]
    done = [[_log_in_a_process(value, batches) for value in points] for _ in range(rounds)]
    for value, found in zip(points, zip(*done, strict=True), strict=True):
        costs = {name: log_sizes.Cost(*min(each[name] for each in found)) for name in names}
        cells = [
            f"{cost.cpu_us / 1000:,.2f}" if LOG_CALLS[name].endswith("ms") else f"{cost.cpu_us:,.1f}"
            for name, cost in costs.items()
        ]
        times.append(f"| {value:,} | {' | '.join(cells)} |")
        cells = [f"{cost.looks:,.0f}; {cost.read_kib:,.0f}" for cost in costs.values()]
        works.append(f"| {value:,} | {' | '.join(cells)} |")
    return "\n".join([*times, "", *works])


def where(facts: Mapping[str, Any]) -> str:
    """Return the line that says when and where the tables were measured, and whether the machine was busy."""
    line = (
        f"{facts['measured_at']}, {facts['processors']} processors ({facts['processor']}), load"
        f" {facts['load_before']} before, {facts['python']}"
    )
    if facts["load_before"] > facts["processors"] / 4:
        line += (
            ": a machine with other work, which raises all figures; the shape of the curves is what counts"
        )
    return f"{line}."


def main() -> None:
    """Measure the chosen curves, and print them; or, as a child process, measure one point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [*CURVES, "connections", "log"]
    parser.add_argument("--curves", nargs="+", choices=names, default=names, help="curves to measure (all)")
    parser.add_argument("--rounds", type=checked.rounds, default=3, help="rounds of each point (3)")
    parser.add_argument("--page", type=Path, help="write the tables into this page, between its marks")
    parser.add_argument("--point", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--log", nargs=2, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.point:
        name, value, bootstrap = arguments.point
        measure(name, int(value), bootstrap)
        return
    if arguments.log:
        measure_log(*arguments.log)
        return
    facts = machine_facts(("splashdam",))
    rounds = arguments.rounds
    with temporary_build_dir() as build_dir:
        _, sink = sink_command("auto", Path(build_dir))
        tables = []
        for name in arguments.curves:
            if name == "connections":
                tables.append(of_connections(CONNECTIONS, rounds))
            elif name == "log":
                tables.append(of_log_sizes(LOG_GIB, rounds))
            else:
                tables.append(producers(name, rounds, sink))
            print(tables[-1], end="\n\n", flush=True)
    if arguments.page is not None:
        text = arguments.page.read_text()
        head, tail = text[: text.index(START) + len(START)], text[text.index(END) :]
        arguments.page.write_text("\n\n".join([head, where(facts), *tables, tail]))


if __name__ == "__main__":
    main()
