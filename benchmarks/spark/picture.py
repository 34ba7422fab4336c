"""Draws the pipeline's picture: ``PYTHONPATH=benchmarks python -m spark.picture RESULT.json PICTURE.svg``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comparison.drawing import chart
from picture import group

from spark.scenarios import SCENARIOS
from splashdam.cli.measuring.figures import Results

HEADING = "Topics as DataFrames: splashdam beside Spark's own Kafka connector"


def draw(document: Mapping[str, Any]) -> str:
    """The bars as SVG; scenarios that were not measured are left out."""
    results = Results(document["runs"])
    groups = [made for each in SCENARIOS if (made := group(each, results)).bars]
    return chart(HEADING, groups, caption(document))


def caption(document: Mapping[str, Any]) -> list[str]:
    """Return the lines with date, machine, versions and command."""
    machine = document["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    hardware = f"{machine['processors']} processors ({machine['processor']}), {machine['memory_gib']} GiB"
    return [
        f"{machine['measured_at']} · {hardware} · load {machine['load_before']} · {machine['system']}",
        f"{machine['python']}, {versions}",
        f"{document['command']} · medians of {document['rounds']} rounds, the thin line is their range",
        "Spark on local[2], the broker in a process of its own on the same processors. In brackets: how many"
        " times better the first bar is, the median of the ratios of the rounds.",
    ]


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    target.write_text(draw(json.loads(source.read_text())))


if __name__ == "__main__":
    main()
