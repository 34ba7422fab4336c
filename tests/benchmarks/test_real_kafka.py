"""Rows with a real Kafka: what its tool prints, what is left out without it, and what the goals compare."""

from __future__ import annotations

import importlib
import io
import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from support.kafka.kafka_jars import has_tools, why_missing

from splashdam.cli.measuring.figures import P50, TIMES, Results
from splashdam.cli.measuring.tables import print_tables
from splashdam.cli.measuring.turns import MeasurementError

PRINTED = """\
Reading payloads from: /tmp/payloads
Number of records read: 1000
Warmup first 1 records. Steady state results will print after the complete test summary.
1613357 records sent, 321385.9 records/sec (30.65 MB/sec), 376.9 ms avg latency, 721.0 ms max latency.
2000000 records sent, 597550.044816 records/sec (56.99 MB/sec), 188.61 ms avg latency, 531.00 ms max \
latency, 179 ms 50th, 426 ms 95th, 503 ms 99th, 531 ms 99.9th.
1999999 steady state records sent, 674763.495277 records/sec (64.35 MB/sec), 188.60 ms avg latency, \
531.00 ms max latency, 179 ms 50th, 426 ms 95th, 503 ms 99th, 531 ms 99.9th.
"""
"""What kafka-producer-perf-test of Kafka 4.4.0 printed for two million records, wrapped."""

REMEDY = "sh tools/fetch_kafka.sh {} 4.4.0"


@pytest.fixture
def no_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of that of Kafka's jars; Java is there."""
    monkeypatch.setenv("KAFKA_JARS", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    return tmp_path


def chosen(*names: str) -> list[Any]:
    """Scenarios of a run on this machine."""
    compare = importlib.import_module("compare")
    found: list[Any] = compare.chosen(compare.parse_arguments(["--scenarios", *names]))
    return found


def test_the_rate_is_that_after_the_warm_up() -> None:
    """Not one of the reports before the end, nor the rate that has the start of the producer in it."""
    tool = importlib.import_module("comparison.kafka_tool")
    assert tool.parsed(PRINTED) == (1_999_999, 674_763.495277)


def test_a_tool_without_a_rate_fails_the_run() -> None:
    """With what it printed: the reason."""
    tool = importlib.import_module("comparison.kafka_tool")
    with pytest.raises(MeasurementError, match=r"no rate:\norg\.apache\.kafka\.Timeout"):
        tool.parsed("org.apache.kafka.TimeoutException: no metadata\n")


def test_the_tool_has_the_settings_of_the_other_clients() -> None:
    """The same wait, batches and requests; records are those that the others send."""
    tool = importlib.import_module("comparison.kafka_tool")
    scenario = importlib.import_module("comparison.real_kafka").SENDING
    destination = SimpleNamespace(bootstrap="here:9092", topic="t", partitions=4)
    command = tool.command("4.4.0", scenario, destination, 1_000, Path("payloads"))
    assert command[command.index("--command-property") + 1 :] == [
        "acks=all",
        "enable.idempotence=true",
        "linger.ms=5",
        "batch.size=1000000",
        "max.request.size=4194304",
    ]
    assert command[command.index("--num-records") + 1] == "1000"
    assert command[command.index("--payload-file") + 1] == "payloads"


@pytest.mark.parametrize(("arrived", "is_right"), [(2_000_000, True), (1_999_999, False)])
def test_the_log_decides_what_the_tool_has_sent(
    arrived: int, is_right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the tool counts."""
    tool = importlib.import_module("comparison.kafka_tool")
    scenario = importlib.import_module("comparison.real_kafka").SENDING
    monkeypatch.setattr(tool, "_run", lambda _command: PRINTED)
    destination = SimpleNamespace(bootstrap="b", topic="t", partitions=4, counts=lambda: {"records": arrived})
    if is_right:
        run = tool.measure("4.4.0", scenario, destination, 2_000_000)
        assert (run["records_per_second"], run["count"]) == (674_763.495277, 1_999_999)
    else:
        with pytest.raises(MeasurementError, match="1,999,999 arrived"):
            tool.measure("4.4.0", scenario, destination, 2_000_000)


def test_rows_are_left_out_without_the_jars(no_jars: Path) -> None:
    """The embedded broker is measured alone, and the report says how to get the jars."""
    compare = importlib.import_module("compare")
    scenarios = chosen("kafka-100", "kafka-wait", "end-to-end-kafka-python")
    plan = compare.plan(scenarios, 1)
    assert [(each.scenario.name, each.contender.label) for each in plan] == [
        ("end-to-end-kafka-python", "splashdam broker")
    ]
    shown = io.StringIO()
    print_tables(scenarios, Results([]), Console(width=170, file=shown))
    remarks = re.findall(r"^  (.*): not measured, (.*)$", shown.getvalue(), re.MULTILINE)
    why = f"the jars of Kafka 4.4.0 are not here: {REMEDY.format(no_jars)}"
    assert [reason for _, reason in remarks] == [why] * 3
    assert remarks[0][0].startswith("splashdam send(), ")
    assert remarks[0][0].endswith(", Kafka's producer-perf-test")
    assert remarks[2][0] == "Kafka 4.4.0"


def test_the_remedy_is_short_for_the_usual_folder(no_jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be copied by everybody."""
    running = importlib.import_module("broker.running")
    monkeypatch.delenv("KAFKA_JARS")
    monkeypatch.setenv("HOME", str(no_jars))
    assert running.why_no_kafka("4.4.0").endswith(REMEDY.format("~/.cache/splashdam/kafka"))


def test_without_java_jars_are_of_no_use(no_jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is missed first."""
    running = importlib.import_module("broker.running")
    (no_jars / "4.4.0").mkdir()
    assert running.why_no_kafka("4.4.0") == ""
    assert running.why_no_kafka("4.4.0", tools=True).startswith(f"the tools are missing in {no_jars}/4.4.0: ")
    monkeypatch.setattr("shutil.which", lambda _name: None)
    assert running.why_no_kafka("4.4.0").startswith("Java is not installed")


def test_a_short_run_needs_no_kafka() -> None:
    """`make bench` stays short."""
    compare = importlib.import_module("compare")
    names = {each.name for each in compare.chosen(compare.parse_arguments([]))}
    assert not names & compare.KAFKA_NAMES


def test_the_way_to_a_consumer_has_its_goal_at_three_fifths_of_the_time() -> None:
    """The ratio is the other one's time by ours, round by round."""
    goals, recorded = map(importlib.import_module, ("comparison.goals", "recorded"))
    goal = next(each for each in goals.GOALS if each.title.startswith("send() to kafka-python's poll()"))
    times = ((1.0, 1.0), (0.6, 1.0), (0.5, 1.0))
    runs = [
        recorded.run_of("end-to-end-kafka-python", label, number, p50_ms=ms)
        for number, both in enumerate(times)
        for label, ms in zip(("splashdam broker", "Kafka 4.4.0"), both, strict=True)
    ]
    found = goal.measured(Results(runs))
    assert [goal.verdict(each) for each in found] == ["floor", "goal", "goal"]
    assert goal.verdict(0.9) == "missed"
    assert goal.figure is TIMES


def arriving(*polls: list[bytes]) -> Iterator[list[bytes]]:
    """What a consumer returns, poll by poll, and then nothing more."""
    yield from polls
    while True:
        yield []


def test_a_wait_lasts_from_the_send_to_the_end_of_the_poll() -> None:
    """Records come in any order; the result has that of their numbers."""
    end_to_end = importlib.import_module("comparison.end_to_end")
    late_ns = time.monotonic_ns()
    polls = arriving([b"0 %d " % late_ns, b"1 %d " % (late_ns - 20_000_000)])
    first, second = end_to_end.waits(lambda: next(polls), 2)
    assert first >= 0
    assert second - first == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("numbers", "text"), [((0, 0), "record 0 came twice"), ((0,), "1 of 2 records came within 0.05 s")]
)
def test_a_record_that_does_not_come_once_ends_the_measurement(numbers: tuple[int, ...], text: str) -> None:
    """The figures of the others would be worth nothing."""
    end_to_end = importlib.import_module("comparison.end_to_end")
    polls = arriving([end_to_end.stamped(each) for each in numbers])
    with pytest.raises(SystemExit, match=text):
        end_to_end.waits(lambda: next(polls), 2, patience_seconds=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("client", ["kafka-python", "confluent-kafka"])
def test_a_small_run_from_producer_to_consumer(client: str, tmp_path: Path, no_jars: Path) -> None:
    """Through the embedded broker; both figures are there, and the broker's data is gone."""
    compare = importlib.import_module("compare")
    scenarios = chosen(f"end-to-end-{client}")
    data = tmp_path / "data"
    data.mkdir()
    with compare.Brokers(str(data)) as brokers:
        runs = [brokers.measure(turn, 0.01) for turn in compare.plan(scenarios, 1)]
    assert [0 < run["p50_ms"] <= run["p99_ms"] for run in runs] == [True]
    assert list(data.iterdir()) == []


@pytest.mark.slow
@pytest.mark.kafka
def test_a_small_run_into_a_real_kafka(tmp_path: Path) -> None:
    """Every client and the tool deliver what they sent; a record comes through a real Kafka to a consumer."""
    if why := why_missing("4.4.0"):
        pytest.skip(why)
    if not has_tools("4.4.0"):
        pytest.skip("Kafka 4.4.0 lacks its command line tools: `make kafka` fetches them")
    compare = importlib.import_module("compare")
    plan = compare.plan(chosen("kafka-100", "end-to-end-kafka-python"), 1)
    with compare.Brokers(str(tmp_path)) as brokers:
        runs = [brokers.measure(turn, 0.001) for turn in plan]
    assert len(runs) == 7
    assert all(run["records_per_second"] > 0 and run["records"] > run["count"] for run in runs[:5])
    assert all(0 < run[P50.name] <= run["p99_ms"] for run in runs[5:])
