"""The tables of a comparison on the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from splashdam.cli.measuring.figures import COLUMNS, CPU, TIMES, Figure, Results, Spread
from splashdam.cli.measuring.scenarios import Contender, Scenario
from splashdam.cli.measuring.turns import why_absent

MIN_WIDTH = 170


def wide_console() -> Console:
    """Return a console so wide that no table is wrapped, even in a log file."""
    console = Console()
    console.width = max(console.width, MIN_WIDTH)
    return console


QUIET_LOAD = 0.5
"""The load before the first measurement up to which a machine has nothing else to do."""


def print_report(
    facts: Mapping[str, Any], scenarios: Sequence[Scenario], results: Results, console: Console
) -> None:
    """Print settings, machine, and a table for each scenario."""
    print_settings(results, console)
    print_machine(facts, console)
    print_tables(scenarios, results, console)


def print_tables(scenarios: Sequence[Scenario], results: Results, console: Console) -> None:
    """Print a table for each scenario, with its note and the contenders that were left out."""
    for scenario in scenarios:
        made = scenario_table(scenario, results)
        console.print(made if made.row_count else Text(scenario.title, "bold"))
        if scenario.note:
            console.print(f"  {scenario.note}", style="dim", highlight=False)
        for why, labels in _left_out(scenario).items():
            text = f"  {', '.join(labels)}: not measured, {why}"
            console.print(text, style="yellow", highlight=False, soft_wrap=True)


def _left_out(scenario: Scenario) -> dict[str, list[str]]:
    """Return the labels of the contenders that were not measured, by the reason."""
    found: dict[str, list[str]] = {}
    for contender in scenario.contenders:
        if why := why_absent(contender):
            found.setdefault(why, []).append(contender.label)
    return found


def scenario_table(scenario: Scenario, results: Results) -> Table:
    """Return a table with medians over the rounds; the last columns have medians of the rounds' ratios."""
    figures = [
        each
        for each in COLUMNS[scenario.kind]
        if any(each.name in run for run in results.runs if run["scenario"] == scenario.name)
    ]
    table = Table(title=scenario.title, title_justify="left", title_style="bold")
    table.add_column(scenario.kind, min_width=33, no_wrap=True)
    for figure in figures:
        table.add_column(figure.title, justify="right", no_wrap=True)
    measured = {run["label"] for run in results.runs if run["scenario"] == scenario.name}
    compared = [figures[0], *(each for each in figures if each is CPU)] if len(measured) > 1 else []
    for figure in compared:
        title = "the first is" if figure is figures[0] else "and in CPU time"
        table.add_column(title, justify="right", no_wrap=True)
    for contender in scenario.contenders:
        spreads = [results.spread(scenario.name, contender.label, figure) for figure in figures]
        if not any(spreads):
            continue
        cells = [
            "" if spread is None else spread.written(figure)
            for spread, figure in zip(spreads, figures, strict=True)
        ]
        cells += [_ratio(scenario, contender, figure, results) for figure in compared]
        table.add_row(contender.label, *cells, style="bold" if contender.ours else "")
    return table


def _ratio(scenario: Scenario, contender: Contender, figure: Figure, results: Results) -> str:
    """Return how many times better the first contender is; "" for itself."""
    first = scenario.contenders[0]
    times = results.ratios(scenario.name, first.label, contender.label, figure)
    return Spread.of(times).written(TIMES) if times and contender is not first else ""


def print_machine(facts: Mapping[str, Any], console: Console) -> None:
    """Print the machine and the versions, with a warning if it was busy or the kernel is not compiled."""
    for name, value in facts.items():
        text = ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else value
        console.print(f"{name.replace('_', ' ')}: {text}", highlight=False)
    if facts["splashdam_twin"] != "compiled":
        text = "no compiled twin here, or SPLASHDAM_PURE is set: splashdam's figures are the Python twin's"
        console.print(text, style="bold yellow")
    if facts["load_before"] > QUIET_LOAD:
        console.print(
            f"this machine was busy: load {facts['load_before']} on {facts['processors']} processors; "
            "trust ratios more than rates",
            style="bold yellow",
        )


def print_settings(results: Results, console: Console) -> None:
    """Print the options of each client, as the process that measured it reports them."""
    seen: dict[str, list[str]] = {}
    for run in results.runs:
        if "options" in run:
            line = f"{run['client']} {run['version']} {json.dumps(run['options'])}"
            names = seen.setdefault(line, [])
            if run["scenario"] not in names:
                names.append(run["scenario"])
    console.print("settings", style="bold")
    for line, names in seen.items():
        console.print(f"  {line}: {', '.join(names)}", highlight=False, soft_wrap=True)
