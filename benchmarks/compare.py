"""Compares `send()` with the producers of kafka-python, confluent-kafka and aiokafka, in one run.

All send to one common sink (`sink.c`) that discards and counts; a run whose count is off fails. Contenders
take turns, every measurement is a fresh process, one record is acknowledged before the clock starts, the
flush is inside it. All run with acks=all and idempotence; "tuned" is linger 5 ms and batches of 1,000,000
bytes for everyone, "defaults" is what each library does by itself. `make bench BENCH_ARGS=--quick` is a
short look.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from contenders import CLIENTS
from report import Run, print_report
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sinks import HERE, PARTITIONS, RunningSink, sink_command, temporary_build_dir

COUNTS = {
    # Slow clients need fewer records for the same seconds; (below 512 B, from 512 B up).
    "splashdam": (1_000_000, 400_000),
    "kafka-python": (60_000, 50_000),
    "confluent-kafka": (1_000_000, 400_000),
    "aiokafka": (150_000, 80_000),
}
QUICK_DIVISOR = 10
RUN_TIMEOUT_SECONDS = 180
TABLE_WIDTH = 130


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[100, 1024], help="bytes of a value")
    parser.add_argument("--modes", nargs="+", choices=("tuned", "defaults"), default=["tuned", "defaults"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of records")
    parser.add_argument("--quick", action="store_true", help="one round, a tenth of the records")
    parser.add_argument("--sink", choices=("auto", "c", "python"), default="auto")
    parser.add_argument("--json", type=Path, help="write every measurement to this file")
    arguments = parser.parse_args(argv)
    if arguments.quick:
        arguments.rounds, arguments.scale = 1, arguments.scale / QUICK_DIVISOR
    return arguments


def plan(arguments: argparse.Namespace) -> list[Run]:
    """Every measurement in the order it is made: in each round all clients take their turn."""
    return [
        {
            "round": number,
            "size": size,
            "mode": mode,
            "client": client,
            "count": _count(arguments, client, size),
        }
        for size in arguments.sizes
        for mode in arguments.modes
        for number in range(arguments.rounds)
        for client in _rotated(arguments.clients, number)
    ]


def _count(arguments: argparse.Namespace, client: str, size: int) -> int:
    return max(1, int(COUNTS[client][size >= 512] * arguments.scale))


def _rotated(clients: list[str], number: int) -> list[str]:
    """A different client begins in each round, so that none always runs on a machine just warmed up."""
    start = number % len(clients)
    return clients[start:] + clients[:start]


def measure(run: Run, sink: list[str]) -> Run:
    """One client in a fresh process against a fresh sink; the run with its figures.

    Raises:
        RuntimeError: the client failed, or the sink counted another number of records than were sent.
    """
    with RunningSink(sink) as running:
        task = {**run, "bootstrap": running.bootstrap, "tuned": run["mode"] == "tuned"}
        command = [sys.executable, str(HERE / "contenders.py"), json.dumps(task)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=RUN_TIMEOUT_SECONDS, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{run['client']} failed:\n{done.stderr.strip()}")
        counts = running.counts()
    if counts["records"] != run["count"] + 1:  # and the one before the clock
        raise RuntimeError(
            f"{run['client']} sent {run['count'] + 1} records, the sink has {counts['records']}"
        )
    return {**run, **counts, **json.loads(done.stdout)}


def machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "splashdam": metadata.version("splashdam"),
        "splashdam_twin": _twin(),
        "measured_at": time.strftime("%Y-%m-%d %H:%M:%S%z"),
    }


def _twin() -> str:
    import splashdam

    return splashdam.__impl__


def measure_all(todo: list[Run], sink: list[str], console: Console) -> list[Run]:
    """Runs the plan with a progress bar; the first failure ends it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    done = []
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=len(todo))
        for run in todo:
            progress.update(bar, description=f"{run['client']}, {run['size']:,} B, {run['mode']}")
            done.append(measure(run, sink))
            progress.advance(bar)
    return done


def main() -> int:
    arguments, console = parse_arguments(), Console()
    console.width = max(
        console.width, TABLE_WIDTH
    )  # a table broken into pieces is no table, in a log file too
    facts = machine()
    with temporary_build_dir() as build_dir:
        kind, sink = sink_command(arguments.sink, Path(build_dir))
        try:
            done = measure_all(plan(arguments), sink, console)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
    console.print(
        f"{kind} sink, {PARTITIONS} partitions, acks=all, idempotent; "
        f"splashdam's {facts['splashdam_twin']} twin; Python {facts['python']}, "
        f"{facts['processors']} processors; median (min-max) of {arguments.rounds}",
        highlight=False,
    )
    print_report(done, console)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": facts, "sink": kind, "runs": done}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
