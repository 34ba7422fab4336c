"""The comparison: order of the turns, arithmetic of the tables, and one small run of everything."""

from __future__ import annotations

import importlib
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from house_tree import ROOT
from rich.console import Console


@pytest.fixture(autouse=True)
def the_benchmarks_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


def run_of(client: str, number: int, seconds: float) -> dict[str, Any]:
    return {
        "client": client,
        "version": "1",
        "size": 100,
        "mode": "tuned",
        "round": number,
        "count": 1_000_000,
        "seconds": seconds,
        "cpu_seconds": 2 * seconds,
        "peak_rss_bytes": 50_000_000,
        "batches": 100,
    }


def test_contenders_take_turns() -> None:
    """In every round each client runs once, and another one begins."""
    compare = importlib.import_module("compare")
    arguments = compare.parse_arguments(["--sizes", "100", "--modes", "tuned", "--rounds", "3"])
    plan = compare.plan(arguments)
    rounds = [[run["client"] for run in plan if run["round"] == number] for number in range(3)]
    assert all(sorted(clients) == sorted(compare.CLIENTS) for clients in rounds)
    assert len({clients[0] for clients in rounds}) == 3


def test_ratios_are_taken_round_by_round() -> None:
    """A slow round slows both; only rates of the same round are compared."""
    report = importlib.import_module("report")
    runs = [
        run_of("splashdam", 0, 1.0),
        run_of("kafka-python", 0, 10.0),
        run_of("splashdam", 1, 2.0),
        run_of("kafka-python", 1, 24.0),
        run_of("kafka-python", 2, 9.0),
    ]
    assert report.ratios(runs, "kafka-python") == [10.0, 12.0]


def test_table_shows_median_and_range() -> None:
    """Rates, MB/s, CPU, memory and records per batch, each as median (min-max)."""
    report = importlib.import_module("report")
    runs = [
        run_of(client, number, 1.0 + number) for number in range(3) for client in ("splashdam", "aiokafka")
    ]
    shown = io.StringIO()
    report.print_report(runs, Console(width=140, file=shown))
    text = shown.getvalue()
    assert "500k (333k-1,000k)" in text
    assert "4.00 (2.00-6.00)" in text
    assert "1.0x (1.0x-1.0x)" in text
    assert "10,000" in text


def test_values_have_the_size_asked_for() -> None:
    """The same values of exactly this size for every client."""
    contenders = importlib.import_module("contenders")
    for size in (10, 100, 1024):
        made = contenders.values(size)
        assert {len(value) for value in made} == {size}
        assert made == contenders.values(size)


def test_a_lost_record_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count at the sink that is not the client's ends the comparison."""
    compare = importlib.import_module("compare")
    monkeypatch.setattr(compare, "RunningSink", _SinkThatLosesOne)
    done = subprocess.CompletedProcess([], 0, stdout="{}", stderr="")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    run = {"client": "aiokafka", "mode": "tuned", "count": 10}
    with pytest.raises(RuntimeError, match="sent 11 records, the sink has 10"):
        compare.measure(run, [])


class _SinkThatLosesOne:
    bootstrap = "nowhere"

    def __init__(self, _command: list[str]) -> None:
        pass

    def __enter__(self) -> _SinkThatLosesOne:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def counts(self) -> dict[str, int]:
        return {"records": 10}


@pytest.mark.slow
def test_a_small_run_of_everything(tmp_path: Path) -> None:
    """All four clients deliver a few thousand records to the sink; table and JSON come out."""
    result = tmp_path / "result.json"
    command = [sys.executable, str(ROOT / "benchmarks/compare.py"), "--rounds", "1", "--scale", "0.002"]
    options = ["--sizes", "100", "--modes", "tuned", "--json", str(result)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for client in ("splashdam", "kafka-python", "confluent-kafka", "aiokafka"):
        assert f" {client} " in done.stdout
    runs = json.loads(result.read_text())["runs"]
    assert all(run["records"] == run["count"] + 1 for run in runs)
