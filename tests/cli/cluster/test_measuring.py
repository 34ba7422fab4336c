"""How clients are measured: turns, ratios, the same records for all, and runs that cannot be trusted."""

from __future__ import annotations

import io
import itertools
import sys
from contextlib import nullcontext
from typing import Any

import attrs
import pytest
from rich.console import Console

from splashdam.cli.connecting import Cluster
from splashdam.cli.measuring import scenarios, turns
from splashdam.cli.measuring.clock import Acks, latency_figures, percentile
from splashdam.cli.measuring.cluster import BenchTopic
from splashdam.cli.measuring.figures import P50, RATE, Results, Spread
from splashdam.cli.measuring.tables import print_machine, print_settings, print_tables
from splashdam.cli.measuring.task import BULK_RECORDS, Task, all_pairs, all_values, chunks, values
from splashdam.net.connect import TcpConnect

TASK = Task(client="splashdam", call="send", size=100, count=25_000, key_bytes=16)
SEND = next(each for each in scenarios.SCENARIOS if each.name == "send-100")


def run_of(label: str, number: int, **figures: Any) -> turns.Run:
    return {"scenario": "send-100", "label": label, "round": number, **figures}


def test_everybody_has_a_turn_in_each_round() -> None:
    """Each round begins with another client."""
    todo = turns.turns([SEND], 4)
    rounds = [[turn.contender.label for turn in todo if turn.round == number] for number in range(4)]
    assert all(sorted(labels) == sorted(each.label for each in SEND.contenders) for labels in rounds)
    assert len({labels[0] for labels in rounds}) == 4


def test_the_short_run_has_the_first_contenders() -> None:
    """A scenario with ``short=0`` has no contenders in it."""
    assert turns.shortened(attrs.evolve(SEND, short=2)).contenders == SEND.contenders[:2]
    assert turns.shortened(attrs.evolve(SEND, short=0)).contenders == ()


def test_clients_that_are_not_installed_are_left_out() -> None:
    """It is named in the report instead."""
    absent = attrs.evolve(SEND.contenders[1], needs=("no_such_module",))
    scenario = attrs.evolve(SEND, contenders=(SEND.contenders[0], absent))
    assert turns.missing_modules(absent) == ["no_such_module"]
    assert turns.taking_part(scenario).contenders == SEND.contenders[:1]


def test_ratios_are_taken_round_by_round() -> None:
    """A slow round slows both; only figures of the same round are compared."""
    rates = [("a", 0, 100.0), ("b", 0, 10.0), ("a", 1, 60.0), ("b", 1, 5.0), ("b", 2, 9.0)]
    results = Results([run_of(label, number, records_per_second=rate) for label, number, rate in rates])
    assert results.ratios("send-100", "a", "b", RATE) == [10.0, 12.0]
    assert results.ratios("send-100", "a", "nobody", RATE) == []


def test_of_times_the_shorter_is_the_better() -> None:
    """Half the latency is twice as good."""
    results = Results([run_of("a", 0, p50_ms=1.0), run_of("b", 0, p50_ms=2.0)])
    assert results.ratios("send-100", "a", "b", P50) == [2.0]


def test_a_spread_is_median_and_range() -> None:
    """One value stands alone, and so does a figure without range."""
    assert Spread.of([3_000.0, 1_000.0, 2_000.0]).written(RATE) == "2k (1k-3k)"
    assert Spread.of([2_000.0]).written(RATE) == "2k"


@pytest.mark.parametrize("size", [10, 100, 1_024, 10_240])
def test_values_have_the_size_asked_for(size: int) -> None:
    """The same values of exactly this size for every client."""
    assert {len(value) for value in values(size)} == {size}
    assert values(size) == values(size)


def test_every_record_is_there_once() -> None:
    """One by one, with keys, and in lists for bulk calls."""
    assert sum(1 for _ in all_values(TASK)) == TASK.count
    pairs = list(all_pairs(TASK))
    assert len(pairs) == TASK.count
    assert {len(key) for _, key in pairs} == {16}
    assert [len(chunk) for chunk in chunks(TASK)] == [BULK_RECORDS, BULK_RECORDS, 5_000]
    assert [len(chunk) for chunk in chunks(attrs.evolve(TASK, count=7))] == [7]


def test_bulk_values_are_the_same_records() -> None:
    """Lists hold the values that are otherwise sent one by one."""
    few = attrs.evolve(TASK, count=3_000)
    assert list(itertools.chain.from_iterable(chunks(few))) == list(all_values(few))


def test_a_task_travels_as_json() -> None:
    """The process reads the same options."""
    assert Task.from_json(TASK.to_json()) == TASK


def test_larger_records_are_fewer() -> None:
    """A measurement takes about as long for every size; latencies have their own number."""
    contender = SEND.contenders[0]
    counts = [attrs.evolve(SEND, size=size).task(contender).count for size in (100, 1_024, 10_240)]
    assert counts == sorted(counts, reverse=True)
    latency = attrs.evolve(SEND, kind="latency")
    assert latency.task(contender).count == latency.task(contender, 0.5).count == 2_100
    assert latency.task(contender, 0.0001).count == 200


def test_percentiles() -> None:
    """Nearest rank; the warm-up is not counted."""
    ordered = [float(number) for number in range(1, 101)]
    assert (percentile(ordered, 0.5), percentile(ordered, 0.99)) == (50.0, 99.0)
    assert latency_figures([9.0] * 100 + [0.001] * 50)["p99_ms"] == 1.0


def test_records_that_are_not_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A callback that never came fails the measurement."""
    monkeypatch.setattr("splashdam.cli.measuring.clock.DELIVERY_SECONDS", -1)
    with pytest.raises(TimeoutError, match="0 of 2 records"):
        Acks().wait_for(2)


def test_a_lost_record_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count at the destination that is not the client's ends the comparison."""
    monkeypatch.setattr(turns, "run_process", lambda *_: {"seconds": 1.0, "cpu_seconds": 1.0})
    monkeypatch.setattr(BenchTopic, "counts", lambda _: {"records": 20})
    topic = BenchTopic(Cluster([], TcpConnect(), None, 0), "nowhere", "t", 4)
    turn = turns.turns([SEND], 1)[0]
    with pytest.raises(turns.MeasurementError, match=r"splashdam send\(\).*sent 21 records, 20 arrived"):
        turns.measure_client(turn, lambda: nullcontext(topic), 20 / turn.contender.records + 1e-9)
    with pytest.raises(turns.MeasurementError, match="did not arrive"):
        turns.measure_cold_start(turn, lambda: nullcontext(topic))


def test_a_client_that_fails_is_quoted() -> None:
    """With what it said last."""
    turn = turns.turns([SEND], 1)[0]
    command = [sys.executable, "-c", "raise SystemExit('no such luck')"]
    with pytest.raises(
        turns.MeasurementError, match=r"splashdam send\(\) \(send\(\), 100 B\) failed:\nno such luck"
    ):
        turns.run_process(command, turn)


def test_a_client_that_hangs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed, too."""
    monkeypatch.setattr(turns, "TIMEOUT_SECONDS", 0.01)
    command = [sys.executable, "-c", "import threading; threading.Event().wait()"]
    with pytest.raises(turns.MeasurementError, match=r"was not done within 0.01 s"):
        turns.run_process(command, turns.turns([SEND], 1)[0])


def test_every_measurement_knows_its_place() -> None:
    """Scenario, label, client and round stand beside the figures."""
    todo = turns.turns([SEND], 1)
    console = Console(quiet=True)
    done = turns.measure_all(todo, lambda _: {"records_per_second": 1.0}, console)
    assert [run["label"] for run in done] == [each.label for each in SEND.contenders]
    assert done[0] == {**run_of("splashdam send()", 0, records_per_second=1.0), "client": "splashdam"}


def test_a_machine_that_is_not_as_it_should_be() -> None:
    """A busy one, and one without the compiled twin, are named in the report."""
    facts = {"splashdam_twin": "Python", "load_before": 3.0, "processors": 2, "versions": {"trio": "1"}}
    shown = io.StringIO()
    print_machine(facts, Console(width=200, file=shown))
    assert "load 3.0 on 2 processors" in shown.getvalue()
    assert "no compiled twin" in shown.getvalue()
    assert "versions: trio 1" in shown.getvalue()


def test_contenders_that_were_not_measured_are_named() -> None:
    """With what is missing."""
    absent = attrs.evolve(SEND.contenders[1], needs=("no_such_module",))
    scenario = attrs.evolve(SEND, contenders=(SEND.contenders[0], absent))
    shown = io.StringIO()
    results = Results([run_of("splashdam send()", 0, records_per_second=1.0)])
    print_tables([scenario], results, Console(width=200, file=shown))
    assert "confluent-kafka produce(): not measured, no_such_module is not installed" in shown.getvalue()


def test_settings_are_listed_once() -> None:
    """With the scenarios they were used in."""
    run = run_of("splashdam send()", 0, client="splashdam", version="1", options={"acks": "all"})
    shown = io.StringIO()
    print_settings(Results([run, {**run, "round": 1}]), Console(width=200, file=shown))
    assert shown.getvalue().splitlines()[1:] == ['  splashdam 1 {"acks": "all"}: send-100']


def test_a_table_has_ratios_of_rate_and_of_cpu_time() -> None:
    """Both say how many times better the first contender is; its own row has none."""
    ours, theirs = (each.label for each in SEND.contenders[:2])
    runs = [run_of(ours, 0, records_per_second=3e3, cpu_seconds_per_million=1.0)]
    runs.append(run_of(theirs, 0, records_per_second=1e3, cpu_seconds_per_million=5.0))
    shown = io.StringIO()
    print_tables([SEND], Results(runs), Console(width=200, file=shown))
    rows = [line for line in shown.getvalue().splitlines() if line.startswith("│")]
    assert len(rows) == 2
    assert "x" not in rows[0].partition("3k")[2]
    assert "3.00x" in rows[1]
    assert "5.00x" in rows[1]
