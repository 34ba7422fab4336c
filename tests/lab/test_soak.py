"""``make soak``: what counts as flat, and some seconds of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError, UnknownTopicOrPartitionError
from support.running.house_tree import ROOT

from lab.soak import flatness, workloads
from lab.soak.__main__ import idle
from lab.soak.flatness import JUDGED_SECONDS, Flatness
from lab.soak.workloads import PARTITIONS, Churn, Compacted, Retained, Transactional

MIB = 1 << 20


def sampled(monkeypatch: pytest.MonkeyPatch, disk_bytes_per_sample: int) -> Flatness:
    """An hour, a sample a minute; the disk fills during the first quarter, and by so much in all of it."""
    clock, samples = count(0, 60), count()
    monkeypatch.setattr(flatness, "resident_bytes", lambda _: 50 * MIB)
    monkeypatch.setattr(flatness, "open_descriptors", lambda _: 40)

    def files_in(_: Path) -> tuple[int, int]:
        number = next(samples)
        return 200, min(number, 15) * MIB + number * disk_bytes_per_sample

    monkeypatch.setattr(flatness, "files_in", files_in)
    found = Flatness(1, Path("data"), lambda: next(clock))
    for _ in range(60):
        found.sample()
    return found


def test_what_fills_in_the_first_quarter_is_flat(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small disk is full soon; the last line gives each trend."""
    found = sampled(monkeypatch, 0)
    assert found.violations() == []
    assert found.verdict().startswith("flat after the first quarter (memory of the brokers +0.0 MiB, ")


def test_what_grows_for_ever_is_not_flat(monkeypatch: pytest.MonkeyPatch) -> None:
    """A MiB a minute is 45 MiB more than there were after the first quarter."""
    found = sampled(monkeypatch, MIB)
    assert [text.partition(" by ")[0] for text in found.violations()] == ["disk grew"]
    assert found.verdict().startswith("not flat after the first quarter")


class FakeConsumer:
    """Two records on its way to the first end; behind that, a record for each further end."""

    def __init__(self, records: list[tuple[bytes, bytes]]) -> None:
        self._records = iter(records)
        self._position, self._end = 0, 1

    def assign(self, places: list[Any]) -> None:
        pass

    def seek_to_beginning(self) -> None:
        pass

    def end_offsets(self, places: list[Any]) -> dict[Any, int]:
        self._end += 1
        return dict.fromkeys(places, self._end)

    def position(self, place: Any) -> int:
        return self._position

    def poll(self, **options: Any) -> dict[int, list[Any]]:
        self._position += 1
        key, value = next(self._records)
        return {0: [SimpleNamespace(key=key, value=value)]}


@pytest.mark.parametrize(
    ("records", "violations"),
    [
        ([(b"1", b"7 "), (b"2", b"7 ")], []),
        # Version 7 of key 1 went when version 8 came behind the first end.
        ([(b"2", b"7 "), (b"2", b"8 "), (b"1", b"8 ")], []),
        (
            [(b"2", b"7 "), (b"2", b"8 "), (b"2", b"9 "), (b"1", b"6 ")],
            ["soak-compacted: key 1 has version 6, not 7; 1 keys are so"],
        ),
    ],
)
def test_a_version_that_came_while_the_reader_was_on_its_way(
    records: list[tuple[bytes, bytes]], violations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cleaner may take the older one away in front of the reader; a version that is lost is said."""
    work = Compacted("localhost:9", 1, 0)
    work._versions = {1: 7, 2: 7}
    monkeypatch.setattr(work, "consumer", lambda **options: nullcontext(FakeConsumer(records)))
    work.compare()
    assert work.violations == violations


class FakeReader:
    """Its first poll returns these numbers of both partitions, the next ones nothing; then time is up."""

    def __init__(self, numbers: tuple[int, ...], time_is_up: Callable[[], None]) -> None:
        self._numbers = numbers
        self._time_is_up = time_is_up

    def assign(self, places: list[Any]) -> None:
        pass

    def seek(self, place: Any, offset: int) -> None:
        pass

    def poll(self, **options: Any) -> dict[int, list[Any]]:
        numbers, self._numbers = self._numbers, ()
        if not numbers:
            self._time_is_up()
            return {}
        return {
            partition: [
                SimpleNamespace(partition=partition, offset=number, value=b"%d " % number)
                for number in numbers
            ]
            for partition in range(PARTITIONS)
        }


@pytest.mark.parametrize(
    ("numbers", "violations"),
    [((0, 1, 2), []), ((0, 1), ["soak-retained: 2 was not read, and 3 are written"])],
)
def test_a_reader_that_never_came_to_the_end_broke_no_promise(
    numbers: tuple[int, ...], violations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that hides its end from readers, or hangs, was not seen: they stopped with the writer."""
    work = Retained("localhost:9", 1, 0)
    work.written = 3
    work.has_written.set()
    reader = FakeReader(numbers, lambda: monkeypatch.setattr(workloads, "_SILENCE_SECONDS", -1))
    monkeypatch.setattr(work, "consumer", lambda **options: nullcontext(reader))
    work._read()
    assert work.violations == violations


class FakeAdmin:
    """Knows these topics; the deletion of one fails once, when the broker has just been killed."""

    def __init__(self, there: set[str], interrupted: str) -> None:
        self.there = there
        self._interrupted = interrupted

    def delete_topics(self, topics: list[str]) -> None:
        for topic in topics:
            if topic == self._interrupted:
                self._interrupted = ""
                raise KafkaConnectionError("the broker is gone")
            if topic not in self.there:
                raise UnknownTopicOrPartitionError
            self.there.remove(topic)


def test_topics_of_interrupted_rounds_stayed_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the files grew: now the next round deletes what a fault kept."""
    work, admin = Churn("localhost:9", 1, 0), FakeAdmin({"one", "two"}, "one")
    monkeypatch.setattr(workloads, "administering", lambda _: nullcontext(admin))
    left = {"one"}
    work._delete(left)
    assert left == {"one"}
    left |= {"two", "never created"}
    work._delete(left)
    assert (left, admin.there) == (set(), set())


def test_what_was_written_last_was_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read began every half minute, and none at the end; a reader whose broker died tries again."""
    work = Compacted("localhost:9", 1, 0)
    work.ending.set()
    work.has_written.set()
    faults = iter([KafkaConnectionError("the broker is gone")])

    def compare() -> None:
        for fault in faults:
            raise fault
        work.counts["whole reads"] += 1

    monkeypatch.setattr(work, "compare", compare)
    work._check()
    assert work.counts == {"readers opened again": 1, "whole reads": 1}
    assert work.violations == []


def test_a_topic_that_cannot_be_read_at_the_end_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """By then every broker runs."""
    work = Compacted("localhost:9", 1, 0)
    work.ending.set()
    work.has_written.set()

    def compare() -> None:
        raise KafkaConnectionError("the broker is gone")

    monkeypatch.setattr(work, "compare", compare)
    work._check()
    assert work.violations == ["soak-compacted could not be read at the end"]


def test_a_soak_that_checked_nothing_passed() -> None:
    """A run that is too short to be judged may be too short for a round of each workload, too."""
    works = [kind("localhost:9", 1, 0) for kind in (Retained, Compacted, Transactional, Churn)]
    works[0].counts["records checked"] = works[2].counts["records checked"] = 1
    assert idle(works, JUDGED_SECONDS - 1) == []
    assert idle(works, JUDGED_SECONDS) == [
        "compacted: no whole reads in the whole run",
        "churn: no topics and groups in the whole run",
    ]
    works[1].counts["whole reads"] = works[3].counts["topics and groups"] = 1
    assert idle(works, JUDGED_SECONDS) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_some_seconds_of_soak() -> None:
    """No promise is broken, and the last line says that this was too short to judge what grows."""
    command = [sys.executable, "-m", "lab.soak", "--hours", "0.006", "--pause", "6"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    last = run.stdout.splitlines()[-1]
    assert last.startswith("soak: too short to judge what grows, ")
    assert "0 promises broken" in last
    assert "transactions: records checked" in run.stdout
