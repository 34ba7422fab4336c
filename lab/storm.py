"""Sends with acks=all for minutes while brokers are killed, restarted and slowed down, and leaders move.

Then kafka-python must read every acknowledged record once, in order, at its offset, whichever replica leads,
and all records of a transaction or none. The status is 1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from rich.console import Console

from lab.broker_process import free_port
from lab.ledger import ISOLATIONS, PARTITIONS, TOPIC, compared_with_log
from lab.producers.process import Producers
from lab.trial import (
    Verdict,
    add_minutes,
    need_linux,
    pause_range,
    run_trial,
    shown_for,
    trial_parser,
    verified_directory,
    wait,
)
from splashdam import EmbeddedCluster
from splashdam.model.broker_errors import BrokerResponseError

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
_IN_SYNC_SECONDS = 30.0


def storm(options: argparse.Namespace, folder: Path, console: Console) -> Verdict:
    """Run the trial, from an empty folder to the verdict."""
    verdict, data = Verdict(), folder / "data"
    with EmbeddedCluster(data, BROKERS, port=free_port(BROKERS), config=_PROPERTIES) as cluster:
        producers = Producers(
            cluster.bootstrap_servers, folder, rate=options.rate, seed=options.seed, foreign=True
        )
        try:
            _send(cluster, producers, options, verdict, console)
            verdict.violations += producers.finish()
        finally:
            producers.kill()
        verdict.facts += producers.facts
        verdict.violations += producers.curve.violations()
        if "taken" in producers.last:
            _compare(cluster, producers.last["taken"], folder, verdict, console)
    for node in range(1, BROKERS + 1):
        verdict.include(verified_directory(data / f"broker-{node}"))
    return verdict


def _send(
    cluster: EmbeddedCluster,
    producers: Producers,
    options: argparse.Namespace,
    verdict: Verdict,
    console: Console,
) -> None:
    seconds, started_at = options.minutes * 60, time.monotonic()

    def status() -> str:
        return f"{producers.acknowledged:,} acknowledged, {faults.counts['kills']} kills"

    with shown_for(seconds, console, status) as show:
        faults = ClusterFaults(cluster, random.Random(options.seed), pause_range(options.pause), show)
        while not producers.acknowledged and time.monotonic() - started_at < 30:
            wait(0.1, show)  # the first record creates the topic
        faults.run(seconds)
    verdict.facts += [(name, f"{count:,}") for name, count in faults.counts.items()]


def _compare(
    cluster: EmbeddedCluster, taken: dict[str, list[int]], folder: Path, verdict: Verdict, console: Console
) -> None:
    for shift, isolation in enumerate(ISOLATIONS):
        for partition in range(PARTITIONS):  # every replica has to hold the same records
            cluster.wait_in_sync()
            replicas = cluster.replicas_of(TOPIC, partition)
            cluster.move_leader(TOPIC, partition, replicas[(partition + shift) % len(replicas)])
        verdict.include(compared_with_log(cluster.bootstrap_servers, taken, folder, isolation, console))


class ClusterFaults:
    """Kills, restarts and slows down the brokers of a cluster, and moves leaders.

    Args:
        cluster: a running cluster, which is in sync.
        dice: chooses faults and times.
        pause_seconds: the shortest and the longest pause between two faults.
        on_step: called ten times a second.

    Attributes:
        counts: faults by their names.
    """

    def __init__(
        self,
        cluster: EmbeddedCluster,
        dice: random.Random,
        pause_seconds: tuple[float, float],
        on_step: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._dice = dice
        self._pause_seconds = pause_seconds
        self._on_step = on_step
        self.counts: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        """Cause faults for some seconds; afterwards all brokers run and are in sync.

        Raises:
            KafkaTimeoutError: the replicas do not get in sync.
        """
        kinds = [self._kill, self._restart, self._move, self._prefer, self._delay, self._drop]
        often = [30, 15, 25, 5, 20, 5]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            wait(self._dice.uniform(*self._pause_seconds), self._on_step)
            self._dice.choices(kinds, often)[0]()
        self._cluster.faults.clear()
        self._cluster.wait_in_sync(_IN_SYNC_SECONDS)

    def _kill(self) -> None:
        """Kill a broker, and now and then a second one: then acks=all must wait."""
        nodes = self._dice.sample(self._cluster.nodes, 2 if self._dice.random() < 0.15 else 1)
        for node in nodes:
            self._cluster.kill(node)
            self.counts["kills"] += 1
            wait(self._dice.choice((0, self._dice.uniform(0, 1))), self._on_step)
        self.counts["times that two were down"] += len(nodes) - 1
        for node in nodes:
            self._cluster.start(node)

    def _restart(self) -> None:
        node = self._dice.choice(self._cluster.nodes)
        self._cluster.stop(node)
        wait(self._dice.uniform(0, 0.5), self._on_step)
        self._cluster.start(node)
        self.counts["restarts"] += 1

    def _move(self) -> None:
        for partition in self._dice.sample(range(PARTITIONS), self._dice.randint(1, PARTITIONS)):
            try:
                self._cluster.move_leader(TOPIC, partition, self._dice.choice(self._cluster.nodes))
            except BrokerResponseError:
                self.counts["moves to brokers that are not in sync yet"] += 1
            else:
                self.counts["leader moves"] += 1

    def _prefer(self) -> None:
        self._cluster.elect_preferred_leaders()
        self.counts["preferred elections"] += 1

    def _delay(self) -> None:
        faults, node = self._cluster.faults, self._dice.choice(self._cluster.nodes)
        slow = self._dice.choice((faults.produce, faults.fetch, faults.any_request))
        delay_ms, chance = self._dice.uniform(20, 400), self._dice.choice((0.2, 1.0))
        with slow(delay_ms=delay_ms, broker=node, probability=chance, from_brokers=True):
            wait(self._dice.uniform(0.3, 2), self._on_step)
        self.counts["times that a broker was slow"] += 1

    def _drop(self) -> None:
        """Break connections before or after a request is handled."""
        moments: tuple[Literal["before", "after"], ...] = ("before", "after")
        when = self._dice.choice(moments)
        node = self._dice.choice(self._cluster.nodes)
        self._cluster.faults.produce(drop=when, broker=node, times=self._dice.randint(1, 5))
        self.counts["times that connections broke"] += 1


def main() -> int:
    """Run the command; return 1 if a promise was broken."""
    parser = trial_parser(
        "storm", __doc__, rate=1500, pause=1.5, pause_help="mean seconds between two faults"
    )
    add_minutes(parser, 10)
    options = parser.parse_args()
    need_linux(parser)
    return run_trial("storm", storm, options)


if __name__ == "__main__":
    raise SystemExit(main())
