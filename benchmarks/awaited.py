"""Where the time of one awaited record goes, step by step, across the caller's thread and the sender's.

``python benchmarks/awaited.py`` sends records one by one to the common sink, notes the time at each step, and
prints medians. The notes themselves cost about a microsecond a record. With ``--one-processor`` client and
sink share a processor: what is left then is work, and the difference is what it costs to wake another
processor.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import checked
from rich.table import Table
from sink.running import RunningSink, sink_command, temporary_build_dir

from splashdam.cli.measuring.tables import wide_console
from splashdam.client.asyncio_producer import AsyncioKafkaProducer
from splashdam.client.producer import KafkaProducer
from splashdam.net.connection import connection
from splashdam.sender.sender import Sender
from splashdam.sender.wakeup import Wakeup

RECORDS = 2_000
WARM_UP = 300
PACE_SECONDS = 0.001

CALL, GOT = "send() is called", "the caller has the answer"
STEPS = {
    "queued": "record in its batch, sender is woken",
    "turn": "the sender's turn begins",
    "write": "decided, sealed: write",
    "written": "written",
    "read": "the answer is read",
    "told": "settled, caller is woken",
}


class Notes:
    """The time of each step of the present record, by its first occurrence."""

    def __init__(self) -> None:
        self.records: list[dict[str, int]] = []
        self.present: dict[str, int] = {}

    def begin(self) -> None:
        """Begin with the next record."""
        self.present = {CALL: time.perf_counter_ns()}

    def end(self) -> None:
        """End the record."""
        self.present[GOT] = time.perf_counter_ns()
        self.records.append(self.present)

    def usual(self) -> list[tuple[str, float]]:
        """Return the steps of the most frequent order, each with the median of its time in µs."""
        in_order = [sorted(record, key=record.__getitem__) for record in self.records]
        order, _ = Counter(map(tuple, in_order)).most_common(1)[0]
        kept = [record for record, steps in zip(self.records, in_order, strict=True) if tuple(steps) == order]
        return [(step, statistics.median(each[step] - each[CALL] for each in kept) / 1e3) for step in order]


@contextmanager
def noted(notes: Notes) -> Iterator[None]:
    """Note the steps of all producers of this process for the block."""

    def around(original: Callable[..., Any], before: str, after: str | None = None) -> Callable[..., Any]:
        def call(*args: Any, **arguments: Any) -> Any:
            # Of this record, even if its caller goes on to the next one meanwhile.
            record = notes.present
            record.setdefault(STEPS[before], time.perf_counter_ns())
            result = original(*args, **arguments)
            if after is not None:
                record.setdefault(STEPS[after], time.perf_counter_ns())
            return result

        return call

    reader = connection.Connection
    with (
        mock.patch.object(Wakeup, "wake", around(Wakeup.wake, "queued")),
        mock.patch.object(Sender, "_turn", around(Sender._turn, "turn")),
        mock.patch.object(connection, "send_now", around(connection.send_now, "write", "written")),
        mock.patch.object(reader, "_take", around(reader._take, "read", "told")),
    ):
        yield


def blocking(bootstrap: str, pace_seconds: float, notes: Notes, records: int) -> None:
    """``send().get()``."""
    with KafkaProducer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
        for number in range(WARM_UP + records):
            notes.begin()
            producer.send(RunningSink.topic, b"x" * 100).get()
            if number >= WARM_UP:
                notes.end()
            if pace_seconds:
                time.sleep(pace_seconds)


def in_asyncio(bootstrap: str, pace_seconds: float, notes: Notes, records: int) -> None:
    """``await send_and_wait()``."""

    async def send() -> None:
        async with AsyncioKafkaProducer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
            for number in range(WARM_UP + records):
                notes.begin()
                await producer.send_and_wait(RunningSink.topic, b"x" * 100)
                if number >= WARM_UP:
                    notes.end()
                if pace_seconds:
                    await asyncio.sleep(pace_seconds)

    asyncio.run(send())


PRODUCERS = {"send().get()": blocking, "asyncio": in_asyncio}


def measured(send: Callable[[str, float, Notes, int], None], pace_seconds: float, records: int) -> Notes:
    notes = Notes()
    with temporary_build_dir() as build_dir:
        _, command = sink_command("auto", Path(build_dir))
        with RunningSink(command) as sink, noted(notes):
            send(sink.bootstrap, pace_seconds, notes, records)
    return notes


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=checked.rounds, default=RECORDS, help="of each run")
    parser.add_argument("--one-processor", action="store_true", help="client and sink on one processor")
    arguments = parser.parse_args(argv)
    if arguments.one_processor:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # the sink inherits it
    console = wide_console()
    console.print(f"load before: {os.getloadavg()[0]:.2f}")
    for name, send in PRODUCERS.items():
        for pace, seconds in (("1,000/s", PACE_SECONDS), ("tight", 0.0)):
            table = Table(title=f"{name}, {pace}", title_justify="left")
            for heading in ("step", "at µs", "since the last"):
                table.add_column(heading, justify="left" if heading == "step" else "right")
            before = 0.0
            for step, at in measured(send, seconds, arguments.records).usual():
                table.add_row(step, f"{at:.0f}", f"{at - before:.0f}")
                before = at
            console.print(table)


if __name__ == "__main__":
    main()
