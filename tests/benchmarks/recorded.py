"""Measurements that nobody made, with figures that are easy to check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from splashdam.cli.measuring.figures import COLUMNS
from splashdam.cli.measuring.scenarios import SCENARIOS, Scenario

MACHINE = {
    "measured_at": "2026-01-02 03:04 UTC",
    "processor": "An <old> & slow one",
    "processors": 2,
    "memory_gib": 8.0,
    "system": "Linux 6.1",
    "python": "CPython 3.11.7",
    "load_before": 0.1,
    "splashdam_twin": "compiled",
    "versions": {"splashdam": "0.1.0", "aiokafka": "0.14.0"},
}


def run_of(scenario: str, label: str, number: int, **figures: float) -> dict[str, Any]:
    """One measurement."""
    return {
        "scenario": scenario,
        "label": label,
        "client": label.partition(" ")[0],
        "round": number,
        **figures,
    }


def runs_of(scenario: Scenario, rounds: int = 3) -> Iterator[dict[str, Any]]:
    """A measurement of everybody in each round: 1 for the first, 2 for the second, …, then tenfold."""
    for number in range(rounds):
        for place, contender in enumerate(scenario.contenders, 1):
            figures = {figure.name: float(place * 10**number) for figure in COLUMNS[scenario.kind]}
            yield run_of(scenario.name, contender.label, number, **figures)


def document() -> dict[str, Any]:
    """A whole comparison of all clients' scenarios."""
    runs = [run for scenario in SCENARIOS for run in runs_of(scenario)]
    return {"command": "compare", "machine": MACHINE, "sink": "C", "rounds": 3, "runs": runs}
