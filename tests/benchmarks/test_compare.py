"""The comparison: what a short run has, the goals' arithmetic, the report, and small runs of everything."""

from __future__ import annotations

import importlib
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.running.house_tree import ROOT

from splashdam.cli.measuring.figures import RATE, TIMES, Results
from splashdam.cli.measuring.turns import MeasurementError

ONLY_IN_FULL = ("8 partitions", "await send()", "tight", "clean partitions", "real Kafka")


@pytest.mark.parametrize("full", [False, True])
def test_a_run_measures_the_goals(full: bool) -> None:
    """Each promised figure is found among the scenarios and contenders of `make bench-full`; of `make bench`
    all but those that take long."""
    compare, goals, recorded = map(importlib.import_module, ("compare", "comparison.goals", "recorded"))
    chosen = compare.chosen(compare.parse_arguments(["--full"] if full else []))
    results = Results([run for scenario in chosen for run in recorded.runs_of(scenario)])
    left_out = [goal.title for goal in goals.GOALS if not goal.measured(results)]
    expected = [goal.title for goal in goals.GOALS if any(text in goal.title for text in ONLY_IN_FULL)]
    assert left_out == ([] if full else expected)


def test_names_of_scenarios_are_unique() -> None:
    """Results are found by scenario and label."""
    compare = importlib.import_module("compare")
    names = [scenario.name for scenario in compare.ALL]
    assert len(set(names)) == len(names)
    for scenario in compare.ALL:
        labels = [contender.label for contender in scenario.contenders]
        assert len(set(labels)) == len(labels)
        assert scenario.contenders[0].ours


def test_a_cold_start_gets_more_rounds() -> None:
    """It is over soon and varies much."""
    compare = importlib.import_module("compare")
    chosen = compare.chosen(compare.parse_arguments(["--scenarios", "cold-start", "send-100"]))
    plan = compare.plan(chosen, 2)
    rounds = {
        name: {turn.round for turn in plan if turn.scenario.name == name}
        for name in ("cold-start", "send-100")
    }
    assert rounds == {"cold-start": set(range(6)), "send-100": {0, 1}}


@pytest.mark.parametrize(("value", "verdict"), [(5, "goal"), (4, "goal"), (3, "floor"), (2.4, "missed")])
def test_verdict_of_a_ratio(value: float, verdict: str) -> None:
    """At the goal, between floor and goal, below the floor."""
    goals = importlib.import_module("comparison.goals")
    goal = goals.Goal("a ratio", lambda _: [], TIMES, 2.5, 4)
    assert goal.verdict(value) == verdict


@pytest.mark.parametrize(("value", "verdict"), [(0.1, "goal"), (0.2, "floor"), (0.3, "missed")])
def test_verdict_of_a_time(value: float, verdict: str) -> None:
    """Where smaller is better, the marks are read the other way round."""
    goals = importlib.import_module("comparison.goals")
    goal = goals.Goal("a time", lambda _: [], goals.P50, 0.25, 0.12)
    assert goal.verdict(value) == verdict


def test_cold_start_is_counted_above_trio_in_the_same_round() -> None:
    """A round without both has no such figure."""
    goals, recorded = map(importlib.import_module, ("comparison.goals", "recorded"))
    runs = [
        recorded.run_of("cold-start", "splashdam", 0, first_ack_ms=200.0),
        recorded.run_of("cold-start", "import trio alone", 0, first_ack_ms=120.0),
        recorded.run_of("cold-start", "splashdam", 1, first_ack_ms=500.0),
    ]
    assert goals.above_trio(Results(runs)) == [80.0]


def test_one_request_at_a_time_is_compared_with_a_bare_echo() -> None:
    """A slow machine slows both; a rate alone said how fast the machine was."""
    goals, recorded = map(importlib.import_module, ("comparison.goals", "recorded"))
    goal = next(each for each in goals.GOALS if each.title.startswith("broker: one-record requests, one in"))
    runs = [
        recorded.run_of("requests-1", "splashdam broker", 0, requests_per_second=2_000.0),
        recorded.run_of("requests-1", "bare echo over loopback", 0, requests_per_second=10_000.0),
    ]
    assert goal.measured(Results(runs)) == [0.2]
    assert goal.verdict(0.2) == "floor"


def test_the_report_has_every_scenario_and_goal() -> None:
    """Settings, machine, a table for each scenario, floors and goals, on recorded measurements."""
    compare, recorded = map(importlib.import_module, ("compare", "recorded"))
    shown = io.StringIO()
    document = recorded.document()
    document["runs"][0] |= {"options": {"acks": "all"}, "version": "1"}
    compare.report(document, compare.SCENARIOS, Console(width=160, file=shown))
    text = shown.getvalue()
    assert all(scenario.title in text for scenario in compare.SCENARIOS)
    assert '{"acks": "all"}' in text
    assert "floors and goals" in text
    assert "missed" in text


def test_a_sink_that_lost_a_record_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the client says: the sink's count decides."""
    compare = importlib.import_module("compare")
    figures = {"seconds": 1.0, "cpu_seconds": 1.0}
    monkeypatch.setattr("splashdam.cli.measuring.turns.run_process", lambda *_: figures)
    monkeypatch.setattr(compare.Laboratory, "opened", lambda *_: _SinkThatLosesOne())
    plan = compare.plan(compare.chosen(compare.parse_arguments(["--scenarios", "send-100"])), 1)
    with pytest.raises(MeasurementError, match="sent 2,001 records, 2,000 arrived"):
        compare.Laboratory([], 0.001, ".", compare.Brokers(".")).measure(plan[0])


class _SinkThatLosesOne:
    bootstrap, topic, partitions = "nowhere", "t", 4

    def __enter__(self) -> _SinkThatLosesOne:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def counts(self) -> dict[str, int]:
        return {"records": 2_000}


def compare_now(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "benchmarks/compare.py", "--rounds", "1", "--scale", "0.0005", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)


def small_run(tmp_path: Path, *scenarios: str) -> dict[str, Any]:
    """The JSON of a comparison with hardly any records."""
    result = tmp_path / "made/result.json"
    result.parent.mkdir()
    done = compare_now("--json", str(result), "--data", str(tmp_path), "--scenarios", *scenarios)
    assert (done.returncode, done.stderr) == (0, "")
    document: dict[str, Any] = json.loads(result.read_text())
    return document


@pytest.mark.slow
@pytest.mark.parametrize("name", ["keys-100", "kept-100", "callback-100", "bulk-100"])
def test_a_small_run_of_a_throughput(name: str, tmp_path: Path) -> None:
    """Every contender delivers to the sink exactly what it sent, and says what it was configured with."""
    runs = small_run(tmp_path, name)["runs"]
    assert all(run["records"] == run["count"] + 1 for run in runs)
    assert all(run["records_per_second"] > 0 and run["options"]["acks"] == "all" for run in runs)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wait-0", "steady-5"])
def test_a_small_run_of_a_latency(name: str, tmp_path: Path) -> None:
    """Every contender's median lies below its 99th percentile."""
    runs = small_run(tmp_path, name)["runs"]
    assert {run["client"] for run in runs} == {"splashdam", "confluent-kafka", "kafka-python", "aiokafka"}
    assert all(0 < run["p50_ms"] <= run["p99_ms"] for run in runs)


@pytest.mark.slow
def test_a_small_run_of_cold_starts(tmp_path: Path) -> None:
    """The first record comes after the import."""
    runs = small_run(tmp_path, "cold-start")["runs"]
    assert all(0 < run["import_ms"] <= run["first_ack_ms"] for run in runs)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["requests-5", "ingest", "fetch", "append", "recover", "compact", "open"])
def test_a_small_run_of_the_broker(name: str, tmp_path: Path) -> None:
    """Broker and limits, each with a figure; nothing stays behind in the folder."""
    runs = small_run(tmp_path, name)["runs"]
    names = {"requests_per_second", "volume_per_second", "opened_seconds"}
    assert all(run[name] > 0 for run in runs for name in names & run.keys())
    assert all(names & run.keys() for run in runs)
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


@pytest.mark.slow
def test_the_python_twin_serves_where_it_is_asked_for(tmp_path: Path) -> None:
    """Its process says which twin it had."""
    runs = small_run(tmp_path, "twin-100")["runs"]
    assert [run["twin"] for run in runs if run["client"] == "splashdam"] == ["python"]
    assert RATE.name in runs[0]


@pytest.mark.parametrize(
    "given",
    [
        "--rounds 0",
        "--rounds x",
        "--scale nan",
        "--scale 0",
        "--scale 1e-9",
        "--json /nodir/x.json",
        "--json .",
        "--svg /dev/null/x",
        "--data /dev/null",
    ],
)
def test_a_bad_argument_was_found_after_minutes_of_measuring(
    given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused at once, with its name; the run had measured everything before it could not write."""
    compare = importlib.import_module("compare")
    with pytest.raises(SystemExit, match="2"):
        compare.parse_arguments(given.split())
    assert f"argument {given.split(maxsplit=1)[0]}: " in capsys.readouterr().err


def test_a_file_that_can_be_written_is_not_made_yet(tmp_path: Path) -> None:
    """What was in a file stays until the end of the run."""
    compare = importlib.import_module("compare")
    (tmp_path / "old.svg").write_text("old")
    compare.parse_arguments(["--json", f"{tmp_path}/new.json", "--svg", f"{tmp_path}/old.svg"])
    assert (tmp_path / "old.svg").read_text() == "old"
    assert list(tmp_path.iterdir()) == [tmp_path / "old.svg"]


def test_a_missing_folder_was_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelled one, where nobody looks for the figures."""
    compare = importlib.import_module("compare")
    with pytest.raises(SystemExit, match="2"):
        compare.parse_arguments(["--json", f"{tmp_path}/made/new.json"])
    assert f"there is no folder {tmp_path}/made" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_scale_left_one_record_of_each_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Whose rates meant nothing. It depends on the scenarios: a latency run keeps enough."""
    compare = importlib.import_module("compare")
    with pytest.raises(SystemExit, match="2"):
        compare.parse_arguments(["--scale", "1e-9"])
    assert "argument --scale: 1e-09 leaves no records: give " in capsys.readouterr().err
    assert compare.parse_arguments(["--scale", "1e-9", "--scenarios", "wait-0"]).scale == 1e-9
