"""Behaviours against clients that are made up: what a verdict means, and that nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from splashdam.testing.contract import running
from splashdam.testing.contract.available_clients import PYTHON_CLIENTS
from splashdam.testing.contract.behaviour import PREFIX, Behaviour, BrokenPromise, Run, expect, expect_one_of
from splashdam.testing.contract.behaviours import AREAS, all_behaviours
from splashdam.testing.contract.report import LEGEND, SIGNS, across, counts, grid, markdown
from splashdam.testing.contract.running import DIFFERENCES, Result, Verdict, hold, hold_all
from splashdam.testing.contract.vocabulary import Client, Listener, Refused


class Scripted(Client):
    """Answers operations from a table, and remembers what it was asked."""

    name, version = "scripted", "1"

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.ops = frozenset(answers)
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def call(self, op: str, /, **args: Any) -> Any:
        self.asked.append((op, args))
        answer = self.answers.get(op)
        if isinstance(answer, Exception):
            raise answer
        return answer


def a_behaviour(check: Callable[[Run], None], *needs: str) -> Behaviour:
    return Behaviour("topics", check.__name__, "It holds.", frozenset(needs), check)


def test_it_holds() -> None:
    """Nothing is said, and the topic is gone."""
    helper = Scripted(describe_topic=[{"partition": 0, "leader": 1, "replicas": [1], "isr": [1]}], offsets=0)

    def check(run: Run) -> None:
        run.topic(max_message_bytes="7")

    result = hold(a_behaviour(check), Scripted(), helper, "host:1")
    assert (result.verdict, result.why, result.client) == (Verdict.HOLDS, "", "scripted 1")
    created, *_, deleted = helper.asked
    assert created[1]["configs"] == {"max.message.bytes": "7", "retention.ms": "-1"}
    assert created[1]["topic"].startswith(PREFIX)
    assert deleted == ("delete_topic", {"topic": created[1]["topic"]})


@pytest.mark.parametrize("error", [BrokenPromise("offset: 1, and not 2"), Refused("NOT_CONTROLLER", "moved")])
def test_it_is_broken(error: Exception) -> None:
    """By what it found, or by an error; groups are deleted all the same."""
    helper = Scripted(delete_group=Refused("GROUP_ID_NOT_FOUND"))

    def check(run: Run) -> None:
        run.group()
        raise error

    result = hold(a_behaviour(check), Scripted(), helper, "host:1")
    assert (result.verdict, result.why) == (Verdict.BROKEN, str(error))
    assert [op for op, _ in helper.asked] == ["delete_group"]


def test_a_known_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not count as broken, and the reason is told."""

    def check(run: Run) -> None:
        expect(1, 2, "offset")

    monkeypatch.setattr(running, "DIFFERENCES", {("check", "scripted"): "it counts from 1"})
    result = hold(a_behaviour(check), Scripted(), Scripted(), "host:1")
    assert (result.verdict, result.why) == (Verdict.DIFFERS, "it counts from 1")


def test_an_operation_that_is_missing() -> None:
    """Named before anything is created, or found out on the way."""
    result = hold(a_behaviour(lambda run: None, "consume"), Scripted(), Scripted(), "host:1")
    assert (result.verdict, result.why) == (Verdict.LEFT_OUT, "the client cannot consume")

    def check(run: Run) -> None:
        raise Refused("NOT_IN_CLIENT", "max_timestamp")

    assert hold(a_behaviour(check), Scripted(), Scripted(), "host:1").verdict is Verdict.LEFT_OUT


def test_expectations() -> None:
    """They say what was found and what should have been."""
    with pytest.raises(BrokenPromise, match=r"^offset: 1, and not 2$"):
        expect(1, 2, "offset")
    with pytest.raises(BrokenPromise, match=r"^found: 1, and none of 2, 3$"):
        expect_one_of(1, (2, 3))
    run = Run(Scripted(), Scripted(), "host:1")
    with pytest.raises(BrokenPromise, match="not refused"), run.refused("NOT_CONTROLLER"):
        pass
    unexpected = "refused with UNKNOWN: why; expected A or B"
    with pytest.raises(BrokenPromise, match=unexpected), run.refused("A", "B"):
        raise Refused("UNKNOWN", "why")


def test_eventually() -> None:
    """It looks again, and gives up with the last thing it saw."""
    looks = iter([BrokenPromise("not yet"), Refused("LEADER_NOT_AVAILABLE"), None])

    def look() -> None:
        found = next(looks)
        if found is not None:
            raise found

    Run(Scripted(), Scripted(), "host:1").eventually(look)
    assert next(looks, "none left") == "none left"


def test_the_report() -> None:
    """A table an area, a column a client; what does not hold is said below."""
    (first, second) = (a_behaviour(lambda run: None)._replace(name=name) for name in ("it_is", "it_was"))
    results = [
        Result(first, "a 1", Verdict.HOLDS),
        Result(first, "b 2", Verdict.DIFFERS, "b cannot know"),
        Result(second._replace(area="groups"), "a 1", Verdict.BROKEN, "offset: 1, and not 2"),
        Result(second._replace(area="groups"), "b 2", Verdict.LEFT_OUT, "the client cannot"),
        Result(first._replace(area="groups"), "b 2", Verdict.HOLDS),
        Result(first._replace(area="groups"), "a 1", Verdict.HOLDS),
    ]
    assert counts(results) == "3 holds, 1 differs, 1 broken, 1 left out"
    assert markdown("Here", results).splitlines() == [
        "## Here",
        "",
        "3 holds, 1 differs, 1 broken, 1 left out.",
        "",
        "| topics | a 1 | b 2 |",
        "|---|:-:|:-:|",
        "| it is | ✓ | ≠ |",
        "",
        "| groups | a 1 | b 2 |",
        "|---|:-:|:-:|",
        "| it was | ✗ | · |",
        "| it is | ✓ | ✓ |",
        "",
        "- ≠ *it is*, b 2: b cannot know",
        "- ✗ *it was*, a 1: offset: 1, and not 2",
    ]
    assert all(sign in LEGEND for sign in SIGNS.values())


def test_a_client_without_a_part_in_an_area() -> None:
    """It has no column there; if nobody has a part, all have."""
    behaviour = a_behaviour(lambda run: None)
    holds, cannot = Result(behaviour, "a 1", Verdict.HOLDS), Result(behaviour, "b 2", Verdict.LEFT_OUT)
    assert grid([holds, cannot])[0] == ["a 1"]
    assert grid([cannot._replace(client="c 3"), cannot])[0] == ["c 3", "b 2"]
    assert "| topics | a 1 |" in across({"here": [holds, cannot]}).splitlines()


def test_listeners_are_those_of_the_run() -> None:
    """Without any there is the one of the address, with neither TLS nor SASL."""
    secure = Listener("host:2", {"security_protocol": "SSL"})
    seen = []

    def check(run: Run) -> None:
        seen.append(run.listeners)

    hold(a_behaviour(check), Scripted(), Scripted(), "host:1")
    hold_all([a_behaviour(check)], [Scripted()], Scripted(), "host:2", listeners=[secure])
    assert seen == [(Listener("host:1"),), (secure,)]


def test_all_through_all() -> None:
    """Every behaviour through every client, told one by one."""
    told: list[Result] = []
    behaviours = [a_behaviour(lambda run: None), a_behaviour(lambda run: None)]
    results = hold_all(behaviours, [Scripted(), Scripted()], Scripted(), "host:1", told.append)
    assert results == told
    assert len(results) == 4


def test_behaviours_are_distinguished() -> None:
    """Names are unique, every one says what it promises, and every area has some."""
    found = all_behaviours()
    assert len({each.name for each in found}) == len(found)
    assert all(each.text.endswith(".") for each in found)
    assert list(dict.fromkeys(each.area for each in found)) == list(AREAS)


def test_known_differences_are_of_behaviours_and_clients() -> None:
    """Every entry of the table names a behaviour and a client that exist."""
    names = {each.name for each in all_behaviours()}
    clients = {*PYTHON_CLIENTS, "java", "kafkajs", "franz-go"}
    assert {name for name, _ in DIFFERENCES} <= names
    assert {client for _, client in DIFFERENCES} <= clients


def test_the_report_of_several_clusters() -> None:
    """A sign where they agree; else that of most of them, and which has another."""
    first, second = (a_behaviour(lambda run: None)._replace(name=name) for name in ("it_is", "it_was"))
    holds = [Result(first, "a 1", Verdict.HOLDS), Result(second, "a 1", Verdict.HOLDS)]
    older = [Result(first, "a 1", Verdict.HOLDS), Result(second, "a 1", Verdict.LEFT_OUT, "not offered")]
    lines = across({"embedded": holds, "4.4.0": holds, "3.9.2": older}).splitlines()
    assert "| 3.9.2 | 1 holds, 0 differs, 0 broken, 1 left out |" in lines
    assert "| it is | ✓ |" in lines
    assert "| it was | ✓, 3.9.2 · |" in lines
    assert lines[-1] == "- · 3.9.2: *it was*, a 1: not offered"
