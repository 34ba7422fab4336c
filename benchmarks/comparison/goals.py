"""Goals: a floor and a goal for each figure, compared with the figures of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import attrs
import machine
from rich.console import Console
from rich.table import Table

from comparison import distance, real_kafka
from splashdam.cli.measuring import scenarios as table
from splashdam.cli.measuring.figures import (
    CPU,
    FIRST_ACK,
    MEMORY,
    OPENED,
    P50,
    P99,
    RATE,
    REQUESTS,
    TIMES,
    VOLUME,
    Figure,
    Results,
    Spread,
)
from splashdam.cli.measuring.scenarios import Contender, Scenario

Measured: TypeAlias = Callable[[Results], Sequence[float]]
"""The figure in each round that has it."""

END_TO_END_GOAL = 1 / 0.6
"""Ratios are inverse: with this one a record takes 0.6 of its time through a real Kafka."""

BROKER = machine.SCENARIOS[0].contenders[0]
_LIMITED = {each.name: each.contenders[:2] for each in machine.SCENARIOS}
"""By scenario: ours, and the plain system call beside it."""
_LOOP = next(each for each in machine.SCENARIOS if each.name == "requests-paced").contenders[2]
"""Writes each request, answers, and does nothing else."""


@attrs.frozen
class Goal:
    """The goal for one figure.

    Attributes:
        title: its name.
        measured: finds it in the results.
        figure: its format, and whether smaller is better.
        floor: value that it must reach.
        goal: value that it should reach.
    """

    title: str
    measured: Measured
    figure: Figure
    floor: float
    goal: float

    def verdict(self, value: float) -> str:
        if self._reaches(value, self.goal):
            return "goal"
        return "floor" if self._reaches(value, self.floor) else "missed"

    def _reaches(self, value: float, mark: float) -> bool:
        return value <= mark if self.figure.smaller_is_better else value >= mark


def ratio(scenario: str, ours: Contender, theirs: Contender, figure: Figure = RATE) -> Measured:
    return lambda results: results.ratios(scenario, ours.label, theirs.label, figure)


def value(scenario: str, ours: Contender, figure: Figure) -> Measured:
    return lambda results: list(results.of(scenario, ours.label, figure).values())


def above_trio(results: Results) -> list[float]:
    """Return the time to the first acknowledged record, minus that of `import trio` in the same round."""
    start, trio = (results.of("cold-start", contender.label, FIRST_ACK) for contender in table.STARTING[:2])
    return [start[number] - trio[number] for number in sorted(start.keys() & trio.keys())]


def keyed(codec: str) -> Measured:
    return ratio(f"keyed-{codec}", table.SEND, table.CK_PRODUCE)


def _latencies(text: str, scenario: str, ours: Contender) -> tuple[Goal, ...]:
    """Return goals for one record at a time, as ratios: 1.25 means 0.8 of the other client's time."""
    return (
        Goal(f"{text}: p50 vs aiokafka", ratio(scenario, ours, table.AK_BLOCKING, P50), TIMES, 1.25, 1.5),
        Goal(f"{text}: p99 vs aiokafka", ratio(scenario, ours, table.AK_BLOCKING, P99), TIMES, 1, 1.25),
        Goal(f"{text}: p50 vs confluent-kafka", ratio(scenario, ours, table.CK_BLOCKING, P50), TIMES, 0.2, 1),
    )


def _end_to_end(scenario: Scenario) -> Goal:
    """Return the goal for a record's way to one consumer, beside the way through a real Kafka."""
    title = f"send() to {scenario.contenders[0].call}'s poll(): p50 vs a real Kafka"
    return Goal(title, ratio(scenario.name, *scenario.contenders, P50), TIMES, 1, END_TO_END_GOAL)


LATENCIES = (
    *_latencies("send().get(), 1,000/s", "wait-0", table.BLOCKING),
    *_latencies("send().get(), tight", "wait-tight", table.BLOCKING),
    *_latencies("await send(), 1,000/s", "await-0", table.AWAITING),
    *_latencies("await send(), tight", "await-tight", table.AWAITING),
)

GOALS = (
    Goal(
        "send(), 100 B, vs confluent-kafka produce()",
        ratio("send-100", table.SEND, table.CK_PRODUCE),
        TIMES,
        3,
        4,
    ),
    Goal("send(), 100 B, vs kafka-python", ratio("send-100", table.SEND, table.KP_SEND), TIMES, 35, 60),
    Goal("send(), 100 B: CPU s per million records", value("send-100", table.SEND, CPU), CPU, 0.39, 0.25),
    Goal("send(), 100 B: peak MB", value("send-100", table.SEND, MEMORY), MEMORY, 150e6, 64e6),
    Goal(
        "send_many(), 100 B, vs confluent-kafka produce_batch()",
        ratio("bulk-100", table.MANY, table.CK_BATCH),
        TIMES,
        8.9,
        14,
    ),
    Goal(
        "send_many(), 100 B, vs aiokafka send_batch()",
        ratio("bulk-100", table.MANY, table.AK_BATCHES),
        TIMES,
        4,
        6,
    ),
    Goal(
        "send(), 1 KiB, vs confluent-kafka produce()",
        ratio("send-1k", table.SEND, table.CK_PRODUCE),
        TIMES,
        1.5,
        2,
    ),
    Goal(
        "send_many(), 1 KiB, vs confluent-kafka produce_batch()",
        ratio("bulk-1k", table.MANY, table.CK_BATCH),
        TIMES,
        2.5,
        3.5,
    ),
    Goal(
        "callback for each, 100 B, vs confluent-kafka's",
        ratio("callback-100", table.CALLBACK, table.CK_CALLBACK),
        TIMES,
        1.8,
        2.5,
    ),
    Goal(
        "defaults, 100 B, vs confluent-kafka's",
        ratio("defaults-100", table.SEND, table.CK_PRODUCE),
        TIMES,
        1.5,
        2.5,
    ),
    Goal("Python twin vs kafka-python", ratio("twin-100", table.PURE, table.KP_SEND), TIMES, 8, 12),
    Goal(
        f"{distance.ROUND_TRIP_MS} ms away, one partition, 16 KiB, 1,000 B, vs kafka-python",
        ratio("far-1k", distance.FAR, distance.KP_FAR),
        TIMES,
        4,
        5,
    ),
    Goal("lz4, keys, 8 partitions, vs confluent-kafka", keyed("lz4"), TIMES, 1, 3),
    Goal("zstd, keys, 8 partitions, vs confluent-kafka", keyed("zstd"), TIMES, 1, 3),
    *LATENCIES,
    Goal("import and first record, above import trio: ms", above_trio, FIRST_ACK, 70, 40),
    # The work for a record beside that for an echo. Where an idle processor wakes late, the echo waits for
    # it at each request, the broker does not, and the ratio is about 1. Where it wakes at once, the ratio is
    # about 0.2. The marks are for the second case.
    Goal(
        "broker: one-record requests, one in flight, vs a bare echo",
        ratio("requests-1", *_LIMITED["requests-1"], REQUESTS),
        TIMES,
        0.15,
        0.3,
    ),
    # A loop of trio that only writes and answers takes 2 to 3 times as long as the sink, which is C. A broker
    # in Python can be no faster (docs/decisions/embedded-broker.md), so the floor is set beside that loop.
    Goal(
        "broker: a one-record request each ms, p50 vs a trio loop that writes",
        ratio("requests-paced", BROKER, _LOOP, P50),
        TIMES,
        0.5,
        0.8,
    ),
    Goal(
        "broker: a one-record request each ms, p50 vs the sink",
        ratio("requests-paced", *_LIMITED["requests-paced"], P50),
        TIMES,
        0.2,
        0.5,
    ),
    Goal(
        "broker: one-record requests, 32 connections, vs a bare trio echo",
        ratio("requests-32", *_LIMITED["requests-32"], REQUESTS),
        TIMES,
        0.4,
        0.6,
    ),
    Goal("broker: ingest of 1 MiB requests, MB/s", value("ingest", BROKER, VOLUME), VOLUME, 400, 1_000),
    Goal("broker: fetch, MB/s", value("fetch", BROKER, VOLUME), VOLUME, 1_500, 3_000),
    Goal("broker: fetch vs a loop of os.sendfile", ratio("fetch", *_LIMITED["fetch"], VOLUME), TIMES, 0.8, 1),
    Goal("log: 1 MiB batches vs os.write", ratio("append", *_LIMITED["append"], VOLUME), TIMES, 0.65, 0.85),
    Goal("log: recovery, MB/s", value("recover", _LIMITED["recover"][0], VOLUME), VOLUME, 1_000, 2_000),
    Goal(
        "log: recovery vs reading and crc32c", ratio("recover", *_LIMITED["recover"], VOLUME), TIMES, 0.6, 0.9
    ),
    Goal("broker: 10,000 clean partitions are open after s", value("open", BROKER, OPENED), OPENED, 2, 1),
    Goal("log: compaction, MB/s", value("compact", _LIMITED["compact"][0], VOLUME), VOLUME, 200, 400),
    Goal("log: compaction, peak MB", value("compact", _LIMITED["compact"][0], MEMORY), MEMORY, 250e6, 120e6),
    Goal(
        "into a real Kafka, 100 B, vs its producer-perf-test",
        ratio("kafka-100", table.SEND, real_kafka.TOOL),
        TIMES,
        1,
        4,
    ),
    *map(_end_to_end, real_kafka.END_TO_END),
)

_STYLES = {"goal": "green", "floor": "yellow", "missed": "bold red"}


def print_goals(results: Results, console: Console, goals: Sequence[Goal] = GOALS) -> None:
    """Print the run's figures with floor and goal; figures that the run did not measure are left out."""
    made = Table(title="floors and goals", title_justify="left", title_style="bold")
    made.add_column("figure")
    for name in ("this run", "floor", "goal", ""):
        made.add_column(name, justify="right")
    for each in goals:
        found = each.measured(results)
        if not found:
            continue
        spread = Spread.of(found)
        verdict = each.verdict(spread.median)
        marks = (each.figure.written(each.floor), each.figure.written(each.goal))
        made.add_row(each.title, spread.written(each.figure), *marks, f"[{_STYLES[verdict]}]{verdict}[/]")
    if made.row_count:
        console.print(made)
