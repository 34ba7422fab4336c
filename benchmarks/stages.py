"""Where the CPU time of one record goes, from the loop that calls `send` to the socket: `make bench-stages`.

Measured by difference: an empty call, the encoder alone, the checksum alone, then everything. The system
reports the CPU time of the calling thread apart from that of all others, and time in the kernel apart from
user time. The figures are medians of rounds, in nanoseconds per record, against the common sink. Linux only.
"""

from __future__ import annotations

import argparse
import itertools
import json
import operator
import resource
import socket
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import checked
import crc32c
import machine
from comparison.drawing import Stage, stages
from rich.console import Console
from rich.table import Table
from sink.running import RunningSink, sink_command, temporary_build_dir

from splashdam.cli.measuring.clients import confluent_kafka as client_confluent_kafka
from splashdam.cli.measuring.clients import kafka_like
from splashdam.cli.measuring.machine import machine_facts
from splashdam.cli.measuring.task import TUNED_BATCH_BYTES, Task, all_values, chunks, values
from splashdam.client.producer import KafkaProducer
from splashdam.record.kernel import BatchBuffer
from splashdam.record.sealing import seal

VOLUME_BYTES = 100_000_000
"""Bytes sent in each round, unless the number of records is given."""
NOW_MS = 1_700_000_000_000

FLOOR = "the floor"

Parts = dict[str, float]
"""Nanoseconds per record by stage."""


@attrs.frozen
class Split:
    """CPU seconds: of the calling thread and of all others, outside the kernel and in it."""

    user: float
    system: float
    other_user: float
    other_system: float

    @classmethod
    def now(cls) -> Split:
        mine, everyone = (resource.getrusage(who) for who in (resource.RUSAGE_THREAD, resource.RUSAGE_SELF))
        return cls(
            mine.ru_utime,
            mine.ru_stime,
            everyone.ru_utime - mine.ru_utime,
            everyone.ru_stime - mine.ru_stime,
        )

    def since(self, before: Split, count: int) -> Split:
        """Return the CPU time added since ``before``, in nanoseconds per record."""
        then, now = attrs.astuple(before), attrs.astuple(self)
        return Split(*(max(0.0, late - early) / count * 1e9 for early, late in zip(then, now, strict=True)))


def per_record(work: Callable[[], object], count: int) -> float:
    """Return the CPU nanoseconds of this thread per record."""
    start = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - start) / count


def empty_calls(task: Task) -> float:
    """The loop, and a call of a C function with two arguments that does nothing."""
    todo, topic, nothing = all_values(task), task.topic, operator.is_

    def work() -> None:
        for value in todo:
            nothing(topic, value)

    return per_record(work, task.count)


def encoding(task: Task) -> float:
    """The encoder called from Python, into full-size buffers."""
    fitting = list(all_values(attrs.evolve(task, count=_full_buffer(task).record_count)))
    loops = max(1, task.count // len(fitting))
    nanoseconds = 0.0
    for _ in range(loops):
        append = BatchBuffer(TUNED_BATCH_BYTES).try_append
        start = time.thread_time_ns()
        for value in fitting:
            append(NOW_MS, None, value, None)
        nanoseconds += time.thread_time_ns() - start
    return nanoseconds / (loops * len(fitting))


def checksum(task: Task) -> float:
    """Header and CRC of full batches."""
    buffer, times = _full_buffer(task), 50
    return per_record(lambda: [seal(buffer) for _ in range(times)], times * buffer.record_count)


def _full_buffer(task: Task) -> BatchBuffer:
    buffer = BatchBuffer(TUNED_BATCH_BYTES)
    for value in itertools.cycle(values(task.size)):
        if not buffer.try_append(NOW_MS, None, value, None):
            return buffer
    raise AssertionError("a cycle has no end")


def whole(task: Task, send: Callable[[], None], flush: Callable[[], object]) -> Split:
    """Everything from the first call to the last acknowledgement."""
    before = Split.now()
    send()
    flush()
    return Split.now().since(before, task.count)


def splashdam_send(task: Task) -> Parts:
    """`send` with a future for each record."""
    producer = _producer(task)

    def send() -> None:
        send_one, topic = producer.send, task.topic
        for value in all_values(task):
            send_one(topic, value)

    loop, encoder, crc = empty_calls(task), encoding(task), checksum(task)
    split = whole(task, send, producer.flush)
    producer.close()
    return {
        "your loop and an empty call": loop,
        "encoding into the batch": max(0.0, encoder - loop),
        "the rest of send(): topic, partition, future, back-pressure": max(0.0, split.user - encoder),
        "its time in the kernel: memory, waiting": split.system,
        "sender: checksum": min(crc, split.other_user),
        "sender: batches, requests, answers": max(0.0, split.other_user - crc),
        "sender: socket, in the kernel": split.other_system,
    }


def splashdam_bulk(task: Task) -> Parts:
    """`send_many` over lists."""
    producer: Any = _producer(task)

    def send() -> None:
        for chunk in todo:
            producer.send_many(task.topic, chunk)

    todo, crc = list(chunks(task)), checksum(task)
    split = whole(task, send, producer.flush)
    producer.close()
    return {
        "send_many(): encoding, partition, back-pressure": split.user,
        "its time in the kernel: memory, waiting": split.system,
        "sender: checksum": min(crc, split.other_user),
        "sender: batches, requests, answers": max(0.0, split.other_user - crc),
        "sender: socket, in the kernel": split.other_system,
    }


def _producer(task: Task) -> KafkaProducer:
    producer = KafkaProducer(**kafka_like.options(task))
    producer.send(task.topic, b"warm").get(timeout=30)
    return producer


def confluent_produce(task: Task) -> Parts:
    """`produce` without a callback."""
    from confluent_kafka import Producer

    producer = Producer(client_confluent_kafka.options(task))
    producer.produce(task.topic, b"warm")
    producer.flush(30)

    def send() -> None:
        produce, topic = producer.produce, task.topic
        for value in all_values(task):
            while True:
                try:
                    produce(topic, value)
                    break
                except BufferError:
                    producer.poll(0.01)

    split = whole(task, send, producer.flush)
    return {
        "your loop and produce()": split.user,
        "its time in the kernel: memory, waiting": split.system,
        "background threads": split.other_user,
        "background threads, in the kernel": split.other_system,
    }


def floor(task: Task) -> Parts:
    """Costs that no client can avoid: a call for each record, a copy of its bytes, checksum and socket."""
    buffer = _full_buffer(task)
    block = bytes(buffer.view())
    target, blocks = memoryview(bytearray(len(block))), 200
    count = blocks * buffer.record_count

    def copy() -> None:
        for _ in range(blocks):
            target[:] = block

    def drain(connection: socket.socket) -> None:
        while connection.recv_into(target):
            pass

    def send() -> None:
        with machine.peer(drain) as connection:
            for _ in range(blocks):
                connection.sendall(block)
            connection.shutdown(socket.SHUT_WR)

    _producer(task).close()  # so that the sink has something to count
    return {
        "your loop and an empty call": empty_calls(task),
        "copying the bytes once": per_record(copy, count),
        "checksum": per_record(lambda: [crc32c.crc32c(block) for _ in range(blocks)], count),
        "socket, in the kernel": per_record(send, count),
    }


WAYS: dict[str, Callable[[Task], Parts]] = {
    FLOOR: floor,
    "splashdam send()": splashdam_send,
    "splashdam send_many()": splashdam_bulk,
    "confluent-kafka produce()": confluent_produce,
}


def measured(
    ways: Sequence[str], size: int, count: int, rounds: int, sink: Sequence[str]
) -> dict[str, Parts]:
    """Return the median of each stage over the rounds; the ways take turns in each round."""
    found: dict[str, list[Parts]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            with RunningSink(list(sink)) as running:
                task = Task(client="", call="", size=size, count=count, bootstrap=running.bootstrap)
                found[way].append(WAYS[way](task))
                counts = running.counts()
            if counts["records"] != (1 if way == FLOOR else count + 1):
                raise SystemExit(f"{way} sent {count + 1:,} records, the sink has {counts['records']:,}")
    return {
        way: {stage: statistics.median(parts[stage] for parts in rounds_) for stage in rounds_[0]}
        for way, rounds_ in found.items()
    }


def picture(document: dict[str, Any]) -> str:
    """Stacked bars, one for each way to send."""
    facts = document["machine"]
    rows = [
        (
            f"{way}: {sum(parts.values()):,.0f} ns",
            [Stage(label, share, f"{share:,.0f} ns") for label, share in parts.items()],
        )
        for way, parts in document["ways"].items()
    ]
    caption = [
        f"{facts['measured_at']} · {facts['processors']} processors ({facts['processor']}) · load"
        f" {facts['load_before']} · {facts['system']} · {facts['python']} · splashdam"
        f" {facts['versions']['splashdam']}, {facts['splashdam_twin']} twin",
        f"benchmarks/stages.py, medians of {document['rounds']} rounds; tuned as in the comparison",
    ]
    return stages(f"CPU time of one record of {document['size']:,} B, by stage", rows, caption)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument(
        "--records", type=int, help="records in each round (by default 100 MB, at most a million records)"
    )
    parser.add_argument("--rounds", type=checked.rounds, default=5, help="number of rounds (5)")
    parser.add_argument(
        "--ways",
        nargs="+",
        choices=WAYS,
        default=list(WAYS),
        metavar="WAY",
        help=f"run only these, of {', '.join(WAYS)}",
    )
    parser.add_argument("--json", type=checked.output_file, help="write every measurement to this file")
    parser.add_argument("--svg", type=checked.output_file, help="draw the bars into this file")
    arguments = parser.parse_args()
    if not hasattr(resource, "RUSAGE_THREAD"):
        sys.exit("stages.py needs RUSAGE_THREAD, which this system does not have")
    count = arguments.records or min(1_000_000, VOLUME_BYTES // arguments.size)
    facts = machine_facts(("splashdam", "confluent-kafka"))
    with temporary_build_dir() as build_dir:
        _, sink = sink_command("auto", Path(build_dir))
        ways = measured(arguments.ways, arguments.size, count, arguments.rounds, sink)
    document = {"machine": facts, "size": arguments.size, "rounds": arguments.rounds, "ways": ways}
    show(ways, arguments.size)
    for path, text in (
        (arguments.json, json.dumps(document, indent=1) + "\n"),
        (arguments.svg, picture(document)),
    ):
        if path is not None:
            path.write_text(text)
            print(f"wrote {path}")


def show(ways: dict[str, Parts], size: int) -> None:
    """Print the stages of each way as a table."""
    table = Table(title=f"CPU ns per record of {size:,} B", title_justify="left")
    table.add_column("stage", min_width=62)
    table.add_column("ns", justify="right")
    for way, parts in ways.items():
        table.add_row(way, f"{sum(parts.values()):,.0f}", style="bold")
        for stage, share in parts.items():
            table.add_row(f"  {stage}", f"{share:,.0f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
