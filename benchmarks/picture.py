"""Draws the picture of the README: `python picture.py RESULT.json PICTURE.svg`."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comparison.drawing import Bar, Group, chart
from machine import SCENARIOS as MACHINE_SCENARIOS

from splashdam.cli.measuring.figures import COLUMNS, TIMES, Figure, Results
from splashdam.cli.measuring.scenarios import SCENARIOS, Scenario

SHOWN = ("send-100", "send-1k", "callback-100", "bulk-100", "bulk-1k", "defaults-100", "wait-0", "cold-start")
"""The scenarios of the picture; the tables have all."""

HEADING = "splashdam beside the other Python clients: same records, same machine, same run"


def draw(document: Mapping[str, Any]) -> str:
    """The bars as SVG; scenarios that were not measured are left out."""
    results = Results(document["runs"])
    by_name = {each.name: each for each in (*SCENARIOS, *MACHINE_SCENARIOS)}
    groups = [made for name in SHOWN if (made := group(by_name[name], results)).bars]
    return chart(HEADING, groups, caption(document))


def group(scenario: Scenario, results: Results) -> Group:
    """The bars of one scenario: the main figure of each contender that was measured."""
    figure = COLUMNS[scenario.kind][0]
    better = "shorter is better" if figure.smaller_is_better else "longer is better"
    bars = []
    for contender in scenario.contenders:
        spread = results.spread(scenario.name, contender.label, figure)
        if spread is not None:
            text = _text(scenario, contender.label, spread.median, figure, results)
            bars.append(Bar(contender.label, spread.median, text, spread.low, spread.high, contender.ours))
    return Group(scenario.title, f"{figure.unit}, {better}", bars)


def _text(scenario: Scenario, label: str, median: float, figure: Figure, results: Results) -> str:
    text = figure.written(median)
    first = scenario.contenders[0].label
    times = results.ratios(scenario.name, first, label, figure)
    if not times or any(each.ours and each.label == label for each in scenario.contenders):
        return text
    return f"{text}  ({TIMES.written(statistics.median(times))})"


def caption(document: Mapping[str, Any]) -> list[str]:
    """Return the lines with date, machine, versions and command: without them a figure says nothing."""
    machine = document["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    hardware = f"{machine['processors']} processors ({machine['processor']}), {machine['memory_gib']} GiB"
    return [
        f"{machine['measured_at']} · {hardware} · load {machine['load_before']} · {machine['system']}",
        f"{machine['python']}, {versions}",
        f"{document['command']} · medians of {document['rounds']} rounds, the thin line is their range",
        f"acks=all and idempotence for all; {document['sink']} sink. In brackets: how many times better"
        " splashdam is, the median of the ratios of the rounds.",
    ]


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    target.write_text(draw(json.loads(source.read_text())))


if __name__ == "__main__":
    main()
