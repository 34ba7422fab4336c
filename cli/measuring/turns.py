"""Who is measured when: in each round everybody once, in a fresh process, another one first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import attrs
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from splashdam.cli.measuring.clients.security import environment
from splashdam.cli.measuring.scenarios import Contender, Scenario

Run: TypeAlias = dict[str, Any]
"""One measurement: scenario, label, client, round, and its figures by name."""

TIMEOUT_SECONDS = 180
_PLAIN: Mapping[str, Any] = {}
"""No TLS and no SASL."""
_HERE = Path(__file__).resolve().parent


class MeasurementError(Exception):
    """A measurement failed or cannot be trusted; the text says which and why."""


class Destination(Protocol):
    """Where the records of one measurement go."""

    bootstrap: str
    topic: str
    partitions: int

    def counts(self) -> dict[str, int]:
        """What has arrived: ``records``, and what else is known. Asked once, at the end."""
        ...


@attrs.frozen
class Turn:
    """One measurement to be made."""

    scenario: Scenario
    contender: Contender
    round: int


def turns(scenarios: Sequence[Scenario], rounds: int) -> list[Turn]:
    """All measurements in order: scenario by scenario, in rounds, in which everybody has one turn."""
    return [
        Turn(scenario, contender, number)
        for scenario in scenarios
        for number in range(rounds)
        for contender in _rotated(scenario.contenders, number)
    ]


def _rotated(contenders: Sequence[Contender], number: int) -> Iterator[Contender]:
    """Another one begins in each round, so that none always runs on a machine just warmed up."""
    start = number % len(contenders)
    yield from contenders[start:]
    yield from contenders[:start]


def missing_modules(contender: Contender) -> list[str]:
    """What would have to be installed for this contender to take part."""
    return [name for name in contender.needs if find_spec(name) is None]


def taking_part(scenario: Scenario) -> Scenario:
    """The scenario without those who are not installed."""
    present = [each for each in scenario.contenders if not missing_modules(each)]
    return attrs.evolve(scenario, contenders=tuple(present))


def shortened(scenario: Scenario) -> Scenario:
    """The scenario as the short run has it; without contenders if it has not."""
    return attrs.evolve(scenario, contenders=tuple(scenario.contenders[: scenario.short]))


def measure_all(todo: Sequence[Turn], measure: Callable[[Turn], Run], console: Console) -> list[Run]:
    """Makes every measurement, with a progress bar; the first that fails ends it.

    Raises:
        MeasurementError: of the one that failed.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    done = []
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=len(todo))
        for turn in todo:
            progress.update(bar, description=f"{turn.scenario.title}: {turn.contender.label}")
            place = {"scenario": turn.scenario.name, "label": turn.contender.label, "round": turn.round}
            done.append({**place, "client": turn.contender.client, **measure(turn)})
            progress.advance(bar)
    return done


def measure_client(
    turn: Turn,
    opened: Callable[[], AbstractContextManager[Destination]],
    scale: float,
    security: Mapping[str, Any] = _PLAIN,
) -> Run:
    """One client in a fresh process, and a count of what arrived.

    Args:
        turn: which measurement.
        opened: where its records go.
        scale: factor on their number.
        security: options for TLS and SASL, see ``security.environment``.

    Raises:
        MeasurementError: the client failed, or another number of records arrived than it sent.
    """
    task = turn.scenario.task(turn.contender, scale)
    with opened() as destination:
        task = attrs.evolve(
            task, bootstrap=destination.bootstrap, topic=destination.topic, partitions=destination.partitions
        )
        command = [sys.executable, "-m", "splashdam.cli.measuring.worker", task.to_json()]
        figures = run_process(command, turn, security)
        counts = destination.counts()
    sent = task.count + 1  # and the one before the clock
    arrived = counts["records"]
    if arrived != sent:
        what = f"{turn.contender.label} ({turn.scenario.title})"
        raise MeasurementError(f"{what} sent {sent:,} records, {arrived:,} arrived")
    figures |= counts | _rates(task.count, task.size, figures)
    if counts.get("batches"):
        figures["records_per_batch"] = counts["records"] / counts["batches"]
    return {"count": task.count, **figures}


def _rates(count: int, size: int, figures: Run) -> Run:
    per_second = count / figures["seconds"]
    return {
        "records_per_second": per_second,
        "megabytes_per_second": per_second * size / 1e6,
        "cpu_seconds_per_million": figures["cpu_seconds"] / count * 1e6,
        "cpu_percent": figures["cpu_seconds"] / figures["seconds"] * 100,
    }


def measure_cold_start(
    turn: Turn,
    opened: Callable[[], AbstractContextManager[Destination]],
    security: Mapping[str, Any] = _PLAIN,
) -> Run:
    """One client from nothing to its first acknowledged record, and a count of what arrived.

    In the first round it starts once more before that, so that bytecode and files are where they usually are.

    Raises:
        MeasurementError: as `measure_client`.
    """
    if turn.round == 0:
        _start_cold(turn, opened, security)
    return _start_cold(turn, opened, security)


def _start_cold(
    turn: Turn, opened: Callable[[], AbstractContextManager[Destination]], security: Mapping[str, Any]
) -> Run:
    with opened() as destination:
        script = str(_HERE / "cold_start.py")
        command = [
            sys.executable,
            "-P",
            script,
            turn.contender.client,
            destination.bootstrap,
            destination.topic,
        ]
        figures = run_process(command, turn, security)
        counts = destination.counts()
    if counts["records"] != turn.contender.records:
        raise MeasurementError(f"the first record of {turn.contender.label} did not arrive")
    return {**counts, **figures}


def run_process(command: Sequence[str], turn: Turn, security: Mapping[str, Any] = _PLAIN) -> Run:
    """The figures that the command prints as JSON.

    Raises:
        MeasurementError: it failed; the text has the end of what it said.
    """
    pure = {"SPLASHDAM_PURE": "1"} if turn.contender.pure else {}
    own = {**os.environ, **pure, **environment(turn.contender.client, security)}
    own.pop("PYTHONDONTWRITEBYTECODE", None)  # who came without bytecode would compile at each start
    what = f"{turn.contender.label} ({turn.scenario.title})"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False, env=own
        )
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(f"{what} was not done within {TIMEOUT_SECONDS} s") from error
    if done.returncode != 0:
        raise MeasurementError(f"{what} failed:\n{done.stderr.strip()[-3000:]}")
    figures: Run = json.loads(done.stdout.splitlines()[-1])
    return figures
