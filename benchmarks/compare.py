"""Compares splashdam with three other clients in one run, and its broker with the limits of the machine.

`make bench` is the short run, `make bench-full` has all scenarios; README.md describes the method. A run that
cannot be trusted, above all one with a missing record, ends with status 1.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import checked
from comparison.distance import PARTITIONS as FAR_PARTITIONS
from comparison.distance import SCENARIOS as DISTANCE_SCENARIOS
from comparison.distance import far_sink_command
from comparison.goals import print_goals
from comparison.real_kafka import NAMES as KAFKA_NAMES
from comparison.real_kafka import SCENARIOS as KAFKA_SCENARIOS
from comparison.real_kafka import Brokers, on_this_machine
from machine import SCENARIOS as MACHINE_SCENARIOS
from picture import draw
from rich.console import Console
from sink.running import PARTITIONS, RunningSink, sink_command, temporary_build_dir

from splashdam.cli.measuring.figures import Results
from splashdam.cli.measuring.machine import machine_facts
from splashdam.cli.measuring.scenarios import SCENARIOS, Scenario
from splashdam.cli.measuring.tables import print_report, wide_console
from splashdam.cli.measuring.turns import (
    MeasurementError,
    Run,
    Turn,
    measure_all,
    measure_client,
    measure_cold_start,
    run_process,
    shortened,
    taking_part,
    turns,
)
from splashdam.model.errors import KafkaError

# A real Kafka is last: it runs until the end, and would take processor time from what comes after it.
ALL: Sequence[Scenario] = (*SCENARIOS, *DISTANCE_SCENARIOS, *MACHINE_SCENARIOS, *KAFKA_SCENARIOS)
CLIENTS = ("splashdam", "confluent-kafka", "kafka-python", "aiokafka")
ROUNDS = 3
FULL_ROUNDS = 5
SHORT_SCALE = 0.5
COUNTED = ("throughput", "distance")
"""Kinds of scenarios whose runs have a number of records; the others have a time, or a least number."""
COLD_START_FACTOR = 3
"""A cold start is short and varies much, so it gets more rounds."""


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="every scenario, every contender, five rounds")
    parser.add_argument(
        "--scenarios", nargs="+", choices=[each.name for each in ALL], metavar="NAME", help="run only these"
    )
    parser.add_argument("--list", action="store_true", help="show the table of scenarios and stop")
    parser.add_argument(
        "--rounds", type=checked.rounds, help=f"number of rounds ({ROUNDS}, in a full run {FULL_ROUNDS})"
    )
    parser.add_argument(
        "--scale",
        type=checked.scale,
        help=f"factor on the number of records ({SHORT_SCALE}, in a full run 1)",
    )
    parser.add_argument(
        "--sink",
        choices=("auto", "c", "python"),
        default="auto",
        help="language of the sink (C if it compiles)",
    )
    parser.add_argument(
        "--data", type=checked.folder, help="where the broker writes; by default the temporary folder"
    )
    parser.add_argument("--json", type=checked.output_file, help="write every measurement to this file")
    parser.add_argument("--svg", type=checked.output_file, help="draw the bars into this file")
    arguments = parser.parse_args(argv)
    arguments.rounds = arguments.rounds or (FULL_ROUNDS if arguments.full else ROUNDS)
    arguments.scale = arguments.scale or (1.0 if arguments.full else SHORT_SCALE)
    if arguments.scale < (least := smallest_scale(chosen(arguments))):
        parser.error(f"argument --scale: {arguments.scale:g} leaves no records: give {least:.2g} or more")
    return arguments


def smallest_scale(scenarios: Sequence[Scenario]) -> float:
    """Return the factor that leaves each contender a record; 0 if no run has a number of records."""
    counts = [
        each.full_count(contender)
        for each in scenarios
        for contender in each.contenders
        if each.kind in COUNTED
    ]
    return 1 / min(counts) if counts else 0.0


def chosen(arguments: argparse.Namespace) -> list[Scenario]:
    """Return the scenarios of this run, each with its contenders of this run."""
    named = [each for each in ALL if not arguments.scenarios or each.name in arguments.scenarios]
    if not arguments.full and not arguments.scenarios:
        named = [shortened(each) for each in named]
    return [on_this_machine(each) if each.name in KAFKA_NAMES else each for each in named if each.contenders]


def plan(scenarios: Sequence[Scenario], rounds: int) -> list[Turn]:
    """Return every measurement in its order, without contenders that cannot be measured here."""
    todo = []
    for scenario in filter(lambda each: each.contenders, map(taking_part, scenarios)):
        times = rounds * COLD_START_FACTOR if scenario.kind == "cold start" and rounds > 1 else rounds
        todo += turns([scenario], times)
    return todo


@attrs.frozen
class Laboratory:
    """Makes one measurement of any kind: with the common sink, of broker and machine, with a real Kafka."""

    sink: Sequence[str]
    scale: float
    data: str
    brokers: Brokers

    def measure(self, turn: Turn) -> Run:
        """Make one measurement.

        Raises:
            MeasurementError: the measurement failed, or a record is missing.
        """
        if turn.scenario.name in KAFKA_NAMES:
            return self.brokers.measure(turn, self.scale)
        if turn.scenario.kind == "machine":
            script = [sys.executable, str(Path(__file__).with_name("machine.py"))]
            return run_process([*script, turn.contender.call, self.data, str(self.scale)], turn)
        if turn.scenario.kind == "cold start":
            return measure_cold_start(turn, self.opened)
        if turn.scenario.kind == "distance":
            return measure_client(turn, self.opened_far_away, self.scale)
        return measure_client(turn, partial(self.opened, turn.scenario.partitions), self.scale)

    def opened(self, partitions: int = PARTITIONS) -> RunningSink:
        return RunningSink([*self.sink, str(partitions)], partitions)

    def opened_far_away(self) -> RunningSink:
        return RunningSink(far_sink_command(), FAR_PARTITIONS)


def report(document: dict[str, Any], scenarios: Sequence[Scenario], console: Console) -> None:
    """Print all tables, the goals last."""
    results = Results(document["runs"])
    facts = {**document["machine"], "sink": document["sink"], "command": document["command"]}
    print_report(facts, scenarios, results, console)
    print_goals(results, console)


def main() -> int:
    arguments, console = parse_arguments(), wide_console()
    scenarios = chosen(arguments)
    if arguments.list:
        for each in scenarios:
            contenders = ", ".join(contender.label for contender in each.contenders)
            console.print(f"{each.name:29}{each.title}: {contenders}", highlight=False, soft_wrap=True)
        return 0
    machine = machine_facts(CLIENTS)
    with temporary_build_dir() as build_dir:
        kind, sink = sink_command(arguments.sink, Path(build_dir))
        data = str(arguments.data or Path(build_dir).parent)
        try:
            with Brokers(data) as brokers:
                laboratory = Laboratory(sink, arguments.scale, data, brokers)
                runs = measure_all(plan(scenarios, arguments.rounds), laboratory.measure, console)
        except (MeasurementError, RuntimeError, KafkaError) as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
    document = {
        "command": shlex.join(["benchmarks/compare.py", *sys.argv[1:]]),
        "machine": machine,
        "sink": kind,
        "rounds": arguments.rounds,
        "runs": runs,
    }
    report(document, scenarios, console)
    if arguments.json is not None:
        save(arguments.json, json.dumps(document, indent=1) + "\n", console)
    if arguments.svg is not None:
        save(arguments.svg, draw(document), console)
    return 0


def save(path: Path, text: str, console: Console) -> None:
    path.write_text(text)
    console.print(f"wrote {path}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
