"""``splashdam bench``: splashdam beside the other installed clients, against a cluster of one's own."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import attrs
import click

from splashdam.cli.failures import INTERRUPTED, failures_reported
from splashdam.cli.measuring.cluster import BenchTopic, bench_topic
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
    taking_part,
    turns,
)
from splashdam.cli.once import OnceCommand
from splashdam.cli.parameters import bootstrap_servers_option, timeout_option
from splashdam.client.local import local_address
from splashdam.embedded_broker.embedded import EmbeddedBroker

NAMES = tuple(scenario.name for scenario in SCENARIOS)
CLIENTS = ("splashdam", "confluent-kafka", "kafka-python", "aiokafka")
DEFAULT_SCENARIOS = ("send-100", "send-1k", "callback-100", "bulk-100", "wait-0")


@click.command(cls=OnceCommand, short_help="Measure splashdam and the other clients on your cluster.")
@bootstrap_servers_option
@click.option(
    "-s",
    "--scenario",
    "names",
    type=click.Choice([*NAMES, "all"]),
    multiple=True,
    default=DEFAULT_SCENARIOS,
    show_default=True,
    help="What to compare; repeatable.",
)
@click.option(
    "-c",
    "--client",
    "clients",
    type=click.Choice(CLIENTS),
    multiple=True,
    help="Measure this client only; repeatable. By default all that are installed.",
)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Turns for everybody.")
@click.option(
    "--scale",
    type=click.FloatRange(0, min_open=True),
    default=0.1,
    show_default=True,
    help="Factor on the number of records; 1 sends for about a second each on a fast machine.",
)
@click.option(
    "--partitions", type=click.IntRange(1), default=4, show_default=True, help="Partitions of the topic."
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 32_767),
    help="Replicas of the topic; by default the cluster decides.",
)
@click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write every measurement to this file.",
)
@timeout_option
def bench(
    *,
    bootstrap_servers: str,
    names: Sequence[str],
    clients: Sequence[str],
    rounds: int,
    scale: float,
    partitions: int,
    replication_factor: int | None,
    json_path: Path | None,
    timeout_seconds: float,
) -> None:
    """Measure splashdam, and every other client that is installed, on your cluster.

    A topic of its own is created and in the end deleted; everything is sent with acks=all and idempotence.
    Each measurement is a process of its own, clients take turns, and the topic's end offsets tell whether
    every record has arrived: a run in which one is missing fails. Ratios are taken round by round.
    """
    chosen = _chosen(names, clients)
    facts = machine_facts(CLIENTS)
    try:
        with (
            failures_reported(),
            _reachable(bootstrap_servers) as bootstrap,
            bench_topic(bootstrap, partitions, replication_factor or -1, timeout_seconds * 1000) as topic,
        ):
            results = _measured(chosen, topic, rounds, scale)
    except MeasurementError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    print_report(facts, chosen, results, wide_console())
    if json_path is not None:
        json_path.write_text(json.dumps({"machine": facts, "runs": list(results.runs)}, indent=1) + "\n")


def _chosen(names: Sequence[str], clients: Sequence[str]) -> list[Scenario]:
    """The scenarios asked for, with the contenders of the clients asked for."""
    chosen = []
    for scenario in SCENARIOS:
        if scenario.name in names or "all" in names:
            contenders = [each for each in scenario.contenders if not clients or each.client in clients]
            if contenders:
                chosen.append(attrs.evolve(scenario, contenders=tuple(contenders)))
    return chosen


def _reachable(bootstrap_servers: str) -> AbstractContextManager[str]:
    """An address for other processes: the cluster's, or that of a broker which serves ``embedded:DIR``."""
    local = local_address(bootstrap_servers)
    if local is None:
        return nullcontext(bootstrap_servers)
    return _Served(EmbeddedBroker(local.directory, port=local.port or 0))


@attrs.frozen
class _Served(AbstractContextManager[str]):
    broker: EmbeddedBroker

    def __enter__(self) -> str:
        self.broker.start()
        return self.broker.bootstrap_servers

    def __exit__(self, *_: object) -> None:
        self.broker.stop()


def _measured(chosen: Sequence[Scenario], topic: BenchTopic, rounds: int, scale: float) -> Results:
    def measure(turn: Turn) -> Run:
        if turn.scenario.kind == "cold start":
            return measure_cold_start(turn, topic.opened)
        return measure_client(turn, topic.opened, scale)

    present = [taking_part(scenario) for scenario in chosen]
    todo = turns([scenario for scenario in present if scenario.contenders], rounds)
    return Results(measure_all(todo, measure, wide_console()))
