"""The pictures: well-formed, complete, and with the machine they belong to."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any
from xml.etree import ElementTree

import pytest
from support.running.house_tree import ROOT

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    """All texts of a picture that parses."""
    return ["".join(each.itertext()) for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_the_picture_of_a_comparison() -> None:
    """Every scenario that is shown, its contenders, values, ratios and the caption; markup is escaped."""
    picture, recorded = map(importlib.import_module, ("picture", "recorded"))
    found = texts(picture.draw(recorded.document()))
    shown = [each for each in recorded.SCENARIOS if each.name in picture.SHOWN]
    assert len(shown) == len(picture.SHOWN)
    for scenario in shown:
        assert any(text.startswith(scenario.title) for text in found)
        assert {contender.label for contender in scenario.contenders} <= set(found)
    caption = " ".join(found[-8:])
    for part in (
        "2026-01-02 03:04 UTC",
        "An <old> & slow one",
        "aiokafka 0.14.0",
        "compare",
        "medians of 3 rounds",
    ):
        assert part in caption


def test_bars_end_inside_the_page() -> None:
    """The longest range sets the scale, so that nothing runs over the edge."""
    picture, recorded, drawing = map(importlib.import_module, ("picture", "recorded", "comparison.drawing"))
    root = ElementTree.fromstring(picture.draw(recorded.document()))
    ends = [float(each.get("x", 0)) + float(each.get("width", 0)) for each in root.iter(f"{SVG}rect")]
    ends += [float(each.get("x2", 0)) for each in root.iter(f"{SVG}line")]
    assert max(ends) <= drawing.WIDTH


def test_ratios_of_the_picture_are_medians_of_rounds() -> None:
    """In the second scenario of a latency the other one takes twice as long in every round: 2.00x."""
    picture, recorded = map(importlib.import_module, ("picture", "recorded"))
    found = texts(picture.draw(recorded.document()))
    assert "20.000  (2.00x)" in found  # latency: the second contender's median over the rounds
    assert "0k  (0.50x)" in found  # throughput: twice the records of the first


def test_scenarios_without_measurements_are_left_out() -> None:
    """A short comparison has a short picture."""
    picture, recorded = map(importlib.import_module, ("picture", "recorded"))
    document = recorded.document()
    document["runs"] = [run for run in document["runs"] if run["scenario"] == "send-100"]
    found = texts(picture.draw(document))
    assert any(text.startswith("send(), 100 B") for text in found)
    assert not any(text.startswith("bulk") for text in found)


def test_a_result_is_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the JSON that a comparison has written."""
    picture, recorded = map(importlib.import_module, ("picture", "recorded"))
    source, target = tmp_path / "result.json", tmp_path / "bench.svg"
    source.write_text(json.dumps(recorded.document()))
    monkeypatch.setattr(sys, "argv", ["picture.py", str(source), str(target)])
    picture.main()
    assert target.read_text() == picture.draw(recorded.document())


def test_stacked_bars() -> None:
    """One scale for all rows; every part is named with its share."""
    drawing: Any = importlib.import_module("comparison.drawing")
    rows = [("long", [drawing.Stage("a & b", 30, "30 ns"), drawing.Stage("c", 10, "10 ns")])]
    rows.append(("short", [drawing.Stage("d", 20, "20 ns")]))
    svg = drawing.stages("stages", rows, ["caption"])
    assert {"a & b", "c", "d", "30 ns", "10 ns", "20 ns", "caption"} <= set(texts(svg))
    bars = [each for each in ElementTree.fromstring(svg).iter(f"{SVG}rect") if each.get("height") == "22"]
    widths = [float(each.get("width", 0)) for each in bars]
    assert widths[0] + widths[1] == pytest.approx(2 * widths[2], abs=0.2)


@pytest.mark.parametrize(
    ("name", "module", "draw"), [("bench", "picture", "draw"), ("bench-stages", "stages", "picture")]
)
def test_the_pictures_of_the_docs_match_their_measurements(name: str, module: str, draw: str) -> None:
    """Beside each stands the JSON of its run; no bar is drawn by hand."""
    source = ROOT / f"docs/pictures/{name}.json"
    drawn = getattr(importlib.import_module(module), draw)(json.loads(source.read_text()))
    assert source.with_suffix(".svg").read_text() == drawn


ROWS: dict[str, tuple[str, str, Callable[[float], str]]] = {
    "`send()` of 100 B, records/s": (
        "send-100",
        "records_per_second",
        lambda rate: f"{round(rate, -3):,.0f}",
    ),
    "from the import to the first acknowledgement, ms": (
        "cold-start",
        "first_ack_ms",
        lambda ms: f"{ms:.0f}",
    ),
    "waiting for each record at 1,000/s, `linger_ms=0`, median, ms": (
        "wait-0",
        "p50_ms",
        lambda ms: f"{ms:.2f}",
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_the_figures_of_readme_are_medians_of_the_picture(row: str) -> None:
    """A new measurement rewrites them."""
    scenario, figure, shown = ROWS[row]
    runs = json.loads((ROOT / "docs/pictures/bench.json").read_text())["runs"]
    medians = [
        median(run[figure] for run in runs if (run["scenario"], run["client"]) == (scenario, client))
        for client in ("splashdam", "confluent-kafka", "kafka-python")
    ]
    assert f"\n| {row} | {' | '.join(map(shown, medians))} |\n" in (ROOT / "README.md").read_text()
