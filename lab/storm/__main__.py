"""Sends with acks=all for minutes while brokers are killed, restarted, moved and slowed down; then compares.

Every acknowledged record has to be there once, in order, at its offset, as kafka-python reads it, also when
other replicas lead; a transaction's records are seen all or not at all. Status 1 if anything is otherwise.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from lab import ROOT
from lab.endurance.broker import free_port
from lab.endurance.producing import Producers
from lab.endurance.records import PARTITIONS, TOPIC
from lab.endurance.verdict import ISOLATIONS, Verdict, compared_with_log, summary, verified_directory
from lab.storm.weather import Weather
from splashdam import EmbeddedCluster

BROKERS = 3
_PROPERTIES = {
    "num.partitions": PARTITIONS,
    "min.insync.replicas": 2,
    "log.segment.bytes": 4 << 20,
    "transaction.state.log.num.partitions": 4,
    "offsets.topic.num.partitions": 4,
    "replica.lag.time.max.ms": 3_000,
    "replica.fetch.backoff.ms": 200,
}


def storm(options: argparse.Namespace, folder: Path, console: Console) -> Verdict:
    """One run, from an empty directory to the verdict."""
    verdict, data = Verdict([], []), folder / "data"
    with EmbeddedCluster(data, BROKERS, port=free_port(BROKERS), config=_PROPERTIES) as cluster:
        producers = Producers(
            cluster.bootstrap_servers, folder, rate=options.rate, seed=options.seed, foreign=True
        )
        try:
            _rage(cluster, producers, options, verdict, console)
            verdict.violations.extend(producers.finish())
        finally:
            producers.kill()
        verdict.facts.extend(producers.facts)
        verdict.violations.extend(producers.curve.violations())
        if "taken" in producers.last:
            _compare(cluster, producers.last["taken"], folder, verdict, console)
    for node in range(1, BROKERS + 1):
        verified = verified_directory(data / f"broker-{node}")
        verdict.violations.extend(verified.violations)
        verdict.facts.extend(verified.facts)
    return verdict


def _rage(
    cluster: EmbeddedCluster,
    producers: Producers,
    options: argparse.Namespace,
    verdict: Verdict,
    console: Console,
) -> None:
    seconds, started_at = options.minutes * 60, time.monotonic()
    columns = (TextColumn("storm"), BarColumn(), TimeRemainingColumn(), TextColumn("{task.fields[now]}"))
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("storm", total=seconds, now="")

        def step() -> None:
            said = f"{producers.acknowledged:,} acknowledged, {weather.counts['kills']} kills"
            bar.update(task, completed=time.monotonic() - started_at, now=said)

        pause = (options.pause / 3, options.pause * 5 / 3)
        weather = Weather(cluster, random.Random(options.seed), pause, step)
        while not producers.acknowledged and time.monotonic() - started_at < 30:
            weather.wait(0.1)  # the topic is made by whoever sends first
        weather.run(seconds)
    verdict.facts.extend((name, f"{count:,}") for name, count in weather.counts.items())


def _compare(
    cluster: EmbeddedCluster, taken: dict[str, list[int]], folder: Path, verdict: Verdict, console: Console
) -> None:
    for shift, isolation in enumerate(ISOLATIONS):
        for partition in range(PARTITIONS):  # every replica has to hold the same
            cluster.wait_in_sync()
            replicas = cluster.replicas_of(TOPIC, partition)
            cluster.move_leader(TOPIC, partition, replicas[(partition + shift) % len(replicas)])
        compared = compared_with_log(cluster.bootstrap_servers, taken, folder, isolation, console)
        verdict.violations.extend(compared.violations)
        verdict.facts.extend(compared.facts)


def main() -> int:
    """The command; 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m lab.storm", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5, help="of sending (5)")
    parser.add_argument("--seed", type=int, default=0, help="of the dice; time is not repeated (0)")
    parser.add_argument("--rate", type=float, default=1500, help="records per second in all (1500)")
    parser.add_argument("--pause", type=float, default=1.5, help="mean seconds between two troubles (1.5)")
    parser.add_argument("--data", type=Path, help="keep everything here; the folder must not exist yet")
    options = parser.parse_args()
    if options.data is not None:
        options.data.mkdir(parents=True)
    # The producers' process imports this package's neighbour from where this one did.
    os.environ["PYTHONPATH"] = str(ROOT)
    console = Console()
    folder: AbstractContextManager[str] = (
        nullcontext(str(options.data))
        if options.data is not None
        else tempfile.TemporaryDirectory(prefix="splashdam-storm-")
    )
    with folder as directory:
        verdict = storm(options, Path(directory), console)
    return summary("storm", options.seed, verdict, console)


if __name__ == "__main__":
    raise SystemExit(main())
