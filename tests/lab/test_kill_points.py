"""``make kill-points``: which points there are, what counts as broken, and some seconds of it."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console
from support.running.house_tree import ROOT

from lab.failing_calls.library import Call
from lab.kill_points import __main__ as program
from lab.kill_points import killing
from lab.kill_points.killing import Action, Killing
from lab.kill_points.points import Point, points_of
from splashdam.model.errors import KafkaTimeoutError


def matches(point: Point, call: Call) -> bool:
    return re.fullmatch(point.pattern, call.subject) is not None


def test_points_are_a_few_of_each_class() -> None:
    """Numbers and unique names do not make a class; calls of others do not count."""
    future = f"/d/disk-1/t-0.{'ab' * 16}-future"
    calls = [
        *(Call(number, "pwritev64v2", f"{future}/{number:020}.log", "") for number in range(9)),
        Call(10, "rename", future, "/d/disk-1/t-0"),  # its second path is the first one of the last call
        Call(11, "write", "/d/disk-1/other-0/0.log", ""),
        Call(12, "rename", "/d/disk-1/t-0", f"/d/disk-1/t-0.{'cd' * 16}-delete"),
    ]
    points = points_of(calls, ("*:*-future*", "rename:*-delete"))
    partition = ".*/disk-[0-9]+/t-[0-9]+"
    writes = "pwritev64v2:.*/t-[0-9]+[.][0-9a-f]{32}-future/[0-9]+[.]log"
    assert points == [
        Point(writes, 1),
        Point(writes, 2),
        Point(writes, 3),
        Point(f"rename:{partition}>{partition}[.][0-9a-f]{{32}}-delete", 1),
        Point(f"rename:{partition}[.][0-9a-f]{{32}}-future>{partition}", 1),
    ]
    matched = [[each.number for each in calls if matches(point, each)] for point in points[2:]]
    assert matched == [[*range(9)], [12], [10]]  # a partition's directory is not that of its copy
    assert points[1].failure().kind == "kill"
    assert (points[1].failure().at, points[1].failure().match) == (2, writes)


class FakeVictim:
    """A process whose status is given for the lives in which it is to be killed."""

    def __init__(self, folder: Path, status: int | None) -> None:
        self.data = folder / "data"
        self.status: int | None = None
        self.ended_with = 0
        self._armed_status = status

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        is_armed = environment is not None and "FAILING_CALLS_KIND" in environment
        self.status = self._armed_status if is_armed else None
        if environment is not None and not is_armed:
            Path(environment["FAILING_CALLS_LOG"]).write_text("")

    def kill(self) -> None:
        self.status = -signal.SIGKILL

    def terminate(self) -> int:
        return self.ended_with


class FakeAction(Action):
    """Adds a call to the log when it begins; ends at once, or never."""

    name = "move"
    patterns = ("rename:*",)

    def __init__(self, victim: FakeVictim) -> None:
        self.victim = victim
        self.ends = True

    def begin(self) -> None:
        if self.victim.status is not None:
            raise KafkaTimeoutError("nobody answers")
        with self.victim.data.with_name("calls").open("a") as log:
            log.write("1\trename\t/d/a\t/d/b\n2\twrite\t/d/a\t\n")
        self.is_accepted = True

    def is_done(self) -> bool:
        return self.ends


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is waited for."""
    monkeypatch.setattr(killing, "_SETTLED_SECONDS", 0)
    monkeypatch.setattr(killing, "_STEP_SECONDS", 0)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("status", "counted", "violations"),
    [
        (-signal.SIGKILL, {"move": 1}, 0),
        (None, {"move: points not reached": 1}, 0),
        (-signal.SIGSEGV, {}, 1),
    ],
)
def test_a_kill_is_counted(
    status: int | None, counted: dict[str, int], violations: int, tmp_path: Path
) -> None:
    """A process that ends otherwise has broken a promise."""
    victim = FakeVictim(tmp_path, status)
    action = FakeAction(victim)
    found = Killing(victim, tmp_path / "library", random.Random(0), lambda: None)
    found.learn([action])
    found.run([action], 60)
    assert dict(found.counts) == counted
    assert (found.points, dict(found.tried)) == ({"move": 1}, {"move": 1})
    assert len(found.violations) == violations
    assert victim.status is None  # it runs again


@pytest.mark.usefixtures("at_once")
def test_an_accepted_action_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next process has to end it."""
    victim = FakeVictim(tmp_path, None)
    action = FakeAction(victim)
    found = Killing(victim, tmp_path / "library", random.Random(0), lambda: None)
    found.learn([action])
    action.ends = False
    monkeypatch.setattr(killing, "_REACHED_SECONDS", 0)
    monkeypatch.setattr(killing, "_DONE_SECONDS", 0.001)
    found.run([action], 60)
    assert [text.partition(":")[0] for text in found.violations] == ["move, rename"]
    assert "no end within" in found.violations[0]


class FakeProcess:
    """A broker, or three, that notes whether it runs; no topic can be created."""

    address = "localhost:9"

    def __init__(self) -> None:
        self.lives: list[str] = []

    def start(self) -> None:
        self.lives.append("started")

    def kill(self) -> None:
        self.lives.append("killed")

    def create_topic(self) -> None:
        raise KafkaTimeoutError("nobody answers")


@pytest.mark.parametrize("part", ["one_broker", "three_brokers"])
def test_a_broker_stayed_whose_topic_could_not_be_created(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was started in front of the block that kills it."""
    process = FakeProcess()
    if part == "one_broker":
        monkeypatch.setattr(program, "Broker", lambda *_: process)
        monkeypatch.setattr(program.CompactedOnce, "start", lambda _: process.create_topic())
    else:
        monkeypatch.setattr(program, "Brokers", lambda *_: process)
    trial = program.KillPoints(Namespace(rate=1, seed=0), tmp_path, tmp_path, Console())
    with pytest.raises(KafkaTimeoutError):
        getattr(trial, part)()
    assert process.lives == ["started", "killed"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_some_seconds_of_kills() -> None:
    """No promise is broken."""
    command = [sys.executable, "-m", "lab.kill_points", "--minutes", "0.3"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    last = run.stdout.splitlines()[-1]
    assert last.startswith("kill-points: ")
    assert "0 promises broken" in last
