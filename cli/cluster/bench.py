"""``splashdam bench``: compare splashdam with the other installed clients on any cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import click

from splashdam.cli.commands import OnceCommand
from splashdam.cli.connecting import CONNECTION, Cluster, served_cluster
from splashdam.cli.exiting import failures_reported, signals_interrupt_trio
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
from splashdam.cli.output import output_failures, write_file
from splashdam.cli.parameters import FiniteRange, OutputPath, cluster_options, settled_cluster
from splashdam.client.settings.rules import options_from_properties

NAMES = tuple(scenario.name for scenario in SCENARIOS)
CLIENTS = ("splashdam", "confluent-kafka", "kafka-python", "aiokafka")
DEFAULT_SCENARIOS = ("send-100", "send-1k", "callback-100", "bulk-100", "wait-0")


@click.command(
    cls=OnceCommand, example="splashdam bench -b kafka.example.com:9092 --scenario send-1k --scale 1"
)
@cluster_options()
@click.option(
    "-s",
    "--scenario",
    "names",
    type=click.Choice([*NAMES, "all"]),
    multiple=True,
    default=DEFAULT_SCENARIOS,
    show_default=True,
    help="Scenario to run; repeatable.",
)
@click.option(
    "-c",
    "--client",
    "clients",
    type=click.Choice(CLIENTS),
    multiple=True,
    help="Measure only this client; repeatable. Default: all that are installed.",
)
@click.option(
    "--rounds", type=click.IntRange(1), default=3, show_default=True, help="Measurements of each client."
)
@click.option(
    "--scale",
    type=FiniteRange(0, min_open=True, what="factor"),
    default=0.1,
    show_default=True,
    help="Factor on the number of records; 1 takes about a second a measurement on a fast machine.",
)
@click.option(
    "--partitions", type=click.IntRange(1), default=4, show_default=True, help="Partitions of the topic."
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 32_767),
    help="Replicas of the topic. Default: the cluster's.",
)
@click.option(
    "--json",
    "json_path",
    type=OutputPath(),
    help="Write every measurement to this file.",
)
def bench(
    *,
    bootstrap_servers: str,
    config: Path | None,
    properties: dict[str, str],
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

    The command creates a topic, and deletes it at the end. Records are sent with acks=all and idempotence.
    Each measurement runs in a process of its own, and clients take turns. The topic's end offsets tell
    whether every record has arrived; if one is missing, the run fails. Ratios are taken round by round.

    Settings for TLS and SASL are passed to every client, by the client's own names.
    """
    chosen = _chosen(names, clients)
    facts = machine_facts(CLIENTS)
    try:
        with (
            signals_interrupt_trio(),
            failures_reported(),
            _served(config, properties, timeout_seconds) as (servers, cluster, security),
            bench_topic(cluster, servers, partitions, replication_factor or -1) as topic,
        ):
            results = _measured(chosen, topic, security, rounds, scale)
    except MeasurementError as error:
        raise click.ClickException(str(error)) from error
    with output_failures():
        print_report(facts, chosen, results, wide_console())
    if json_path is not None:
        write_file(json_path, json.dumps({"machine": facts, "runs": list(results.runs)}, indent=1) + "\n")


def _chosen(names: Sequence[str], clients: Sequence[str]) -> list[Scenario]:
    """Return the chosen scenarios with the contenders of the chosen clients."""
    chosen = []
    for scenario in SCENARIOS:
        if scenario.name in names or "all" in names:
            contenders = [each for each in scenario.contenders if not clients or each.client in clients]
            if contenders:
                chosen.append(attrs.evolve(scenario, contenders=tuple(contenders)))
    return chosen


@contextmanager
def _served(
    config: Path | None, properties: Mapping[str, str], timeout_seconds: float
) -> Iterator[tuple[str, Cluster, dict[str, Any]]]:
    """Yield the cluster's address for other processes, this process's access, and TLS and SASL options."""
    address, settings = settled_cluster(config, properties)
    # Only TLS and SASL: other options (linger, batch size) are part of what the scenarios compare.
    connection = {name: value for name, value in settings.items() if name.startswith(CONNECTION)}
    with served_cluster(address, settings, timeout_seconds) as (servers, cluster):
        yield servers, cluster, options_from_properties(connection, what="client")


def _measured(
    chosen: Sequence[Scenario], topic: BenchTopic, security: Mapping[str, Any], rounds: int, scale: float
) -> Results:
    def measure(turn: Turn) -> Run:
        if turn.scenario.kind == "cold start":
            return measure_cold_start(turn, topic.opened, security)
        return measure_client(turn, topic.opened, scale, security)

    present = [taking_part(scenario) for scenario in chosen]
    todo = turns([scenario for scenario in present if scenario.contenders], rounds)
    return Results(measure_all(todo, measure, wide_console()))
