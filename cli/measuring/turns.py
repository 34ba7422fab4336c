"""The order of measurements, and their processes: each round has every client once, another one first."""

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
    """A measurement failed, or its figures cannot be trusted; the text names it and the reason."""


class Destination(Protocol):
    """The topic for the records of one measurement."""

    bootstrap: str
    topic: str
    partitions: int

    def counts(self) -> dict[str, int]:
        """Return ``records``, how many have arrived, and perhaps other counts. Called once, at the end."""
        ...


@attrs.frozen
class Turn:
    """One measurement to make."""

    scenario: Scenario
    contender: Contender
    round: int


def turns(scenarios: Sequence[Scenario], rounds: int) -> list[Turn]:
    """Return all measurements in their order: by scenario, then by round, with a turn for each contender."""
    return [
        Turn(scenario, contender, number)
        for scenario in scenarios
        for number in range(rounds)
        for contender in _rotated(scenario.contenders, number)
    ]


def _rotated(contenders: Sequence[Contender], number: int) -> Iterator[Contender]:
    """Begin each round with another contender, so that none always follows the same one."""
    start = number % len(contenders)
    yield from contenders[start:]
    yield from contenders[:start]


def missing_modules(contender: Contender) -> list[str]:
    """Return the modules that this contender needs and that are not installed."""
    return [name for name in contender.needs if find_spec(name) is None]


def why_absent(contender: Contender) -> str:
    """Return why a contender cannot be measured here; "" if it can."""
    missing = missing_modules(contender)
    return f"{', '.join(missing)} is not installed" if missing else contender.absent


def taking_part(scenario: Scenario) -> Scenario:
    """Return the scenario without contenders that cannot be measured here."""
    present = [each for each in scenario.contenders if not why_absent(each)]
    return attrs.evolve(scenario, contenders=tuple(present))


def shortened(scenario: Scenario) -> Scenario:
    """Return the scenario with the contenders of the short run, perhaps none."""
    return attrs.evolve(scenario, contenders=tuple(scenario.contenders[: scenario.short]))


def measure_all(todo: Sequence[Turn], measure: Callable[[Turn], Run], console: Console) -> list[Run]:
    """Make every measurement, with a progress bar; the first failure ends it.

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
    """Measure one client in a fresh process, and count the records that arrived.

    Args:
        turn: the measurement.
        opened: opens its destination.
        scale: factor on the number of records.
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
    sent = task.count + 1  # and the first one, before the clock started
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
    """Measure one client from its import to its first acknowledged record, and check that the record arrived.

    The first round has an unmeasured start before it, so that bytecode is compiled and files are cached.

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
    """Run a command, and return the figures that it prints as JSON.

    Raises:
        MeasurementError: it failed; the text has the end of its standard error.
    """
    pure = {"SPLASHDAM_PURE": "1"} if turn.contender.pure else {}
    own = {**os.environ, **pure, **environment(turn.contender.client, security)}
    own.pop("PYTHONDONTWRITEBYTECODE", None)  # else a client without bytecode would be compiled at each start
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
