"""The pipeline's benchmark: its picture, its table without the connector, and what it reads of processes."""

from __future__ import annotations

import importlib
import os
from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("pyarrow", reason="needs splashdam[spark]")

MACHINE = {
    "measured_at": "2026-01-02 03:04 UTC",
    "processors": 2,
    "processor": "An <old> & slow one",
    "memory_gib": 4,
    "load_before": 0.1,
    "system": "Linux 6",
    "python": "CPython 3.11",
    "versions": {"splashdam": "1", "kafka": "4.2.0"},
}


def document(scenarios: Any) -> dict[str, Any]:
    """A run in which the third contender takes twice as long."""
    runs = [
        {
            "scenario": each.name,
            "label": who.label,
            "client": who.client,
            "round": 1,
            "records_per_second": rate,
        }
        for each in scenarios
        for who, rate in zip(each.contenders, (800_000, 600_000, 400_000, 200_000), strict=False)
    ]
    return {"machine": MACHINE, "command": "benchmarks/pipeline.py", "rounds": 1, "runs": runs}


def test_picture() -> None:
    """Every scenario with its contenders, and how many times faster the first is."""
    scenarios, picture = map(importlib.import_module, ("spark.scenarios", "spark.picture"))
    drawn = ElementTree.fromstring(picture.draw(document(scenarios.SCENARIOS)))
    texts = ["".join(each.itertext()) for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    for scenario in scenarios.SCENARIOS:
        assert any(text.startswith(scenario.title) for text in texts)
        assert {who.label for who in scenario.contenders} <= set(texts)
    assert any("(2.00x)" in text for text in texts)


def test_without_the_connector() -> None:
    """Ours are measured alone."""
    pipeline = importlib.import_module("pipeline")
    for scenario in pipeline.chosen(None, connector=False):
        assert scenario.contenders
        assert all(who.ours for who in scenario.contenders)


def test_every_call_is_there() -> None:
    """The table names functions."""
    scenarios = importlib.import_module("spark.scenarios")
    calls = {who.call for each in scenarios.SCENARIOS for who in each.contenders}
    assert calls <= scenarios.CALLS.keys()


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="reads what Linux says of processes")
def test_processes() -> None:
    """This process has used time, and none of Spark's workers is below it."""
    processes = importlib.import_module("spark.processes")
    assert os.getpid() in processes.tree(os.getpid())
    assert processes.cpu_seconds_of_tree(os.getpid()) > 0
    assert processes.peak_of_workers(os.getpid()) == 0
