"""Curves of connections and of log sizes: the simulated log is a real one, and its work is counted."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from splashdam.model.values import TopicPartition
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.log import Log
from splashdam.storage.settings import LogSettings

SEGMENTS, BATCHES, ACTIVE = 2, 12, 5


def written_log(folder: Path) -> Path:
    """A log that was appended to batch by batch, rolled by its size, and closed."""
    sparse_log = importlib.import_module("broker.sparse_log")
    folder.mkdir()
    log = Log.open(
        DiskFiles(fsync=False),
        str(folder),
        TopicPartition("bench", 0),
        LogSettings(segment_bytes=BATCHES * sparse_log.BATCH_BYTES),
        topic_id=bytes(16),
        now_ms=sparse_log.FIRST_MS,
        clean_shutdown=False,
        recovery_point=0,
    )
    for number in range(SEGMENTS * BATCHES + ACTIVE):
        log.append_as_leader(sparse_log.batch_at(number, 0), now_ms=sparse_log.timestamp_of(number))
    log.close()
    return folder


def simulated_log(folder: Path, *, is_whole: bool) -> Path:
    sparse_log = importlib.import_module("broker.sparse_log")
    folder.mkdir()
    sparse_log.write_log(folder, SEGMENTS, BATCHES, ACTIVE, lambda _: is_whole)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_simulated_log_is_what_a_leader_writes(tmp_path: Path) -> None:
    """With every batch in it, each file is the same, byte for byte."""
    written, simulated = written_log(tmp_path / "written"), simulated_log(tmp_path / "whole", is_whole=True)
    assert contents(simulated) == contents(written)


def test_a_sparse_log_differs_in_its_holes_alone(tmp_path: Path) -> None:
    """Same names and lengths, same indexes; what is in its logs is either the batch or zeros."""
    size = importlib.import_module("broker.sparse_log").BATCH_BYTES
    whole = contents(simulated_log(tmp_path / "whole", is_whole=True))
    sparse = contents(simulated_log(tmp_path / "sparse", is_whole=False))
    assert whole.keys() == sparse.keys()
    for name, data in sparse.items():
        if not name.endswith(".log"):
            assert data == whole[name], name
            continue
        there = [data[at : at + size] == whole[name][at : at + size] for at in range(0, len(data), size)]
        assert len(data) == len(whole[name])
        assert [there[0], there[-2], there[-1], all(there)] == [True, True, True, False]
        assert all(is_there or not any(data[n * size : (n + 1) * size]) for n, is_there in enumerate(there))


def test_the_work_of_a_log_by_its_segments() -> None:
    """A fetch and an append do the same work in any log; a start looks at each segment, and reads one."""
    measure = importlib.import_module("broker.log_sizes").measure
    few, many = measure(2, 16), measure(6, 16)
    for call in ("fetch", "first fetch", "append"):
        assert (few[call].looks, few[call].read_kib) == (many[call].looks, many[call].read_kib)
    assert few["opening"].read_kib == many["opening"].read_kib
    assert many["opening"].looks > few["opening"].looks
    assert all(cost.cpu_us > 0 for cost in many.values())


def test_the_tables_of_the_log_sizes() -> None:
    """A row for each size, a column for each call, in both tables."""
    scaling = importlib.import_module("scaling")
    times, works = scaling.of_log_sizes((1, 3), 1, batches=16).split("\n\n**The same calls")
    for each, rows in ((times, times.splitlines()[-2:]), (works, works.splitlines()[-2:])):
        assert [row.split(" | ")[0] for row in rows] == ["| 1", "| 3"], each
        assert {row.count("|") for row in rows} == {len(scaling.LOG_CALLS) + 2}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and the clocks of processes")
def test_connections_take_turns() -> None:
    """Every record of every connection arrives, and each field has a figure."""
    found = importlib.import_module("broker.connections").measure(3, requests=7, idle_seconds=0)
    assert found.request_us > 0
    assert found.memory_mib > 0


def test_the_table_of_the_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Medians of the rounds; a ratio compares points of one round, as a busy machine slows both."""
    scaling, brokers = map(importlib.import_module, ("scaling", "broker.connections"))
    figures = iter([(10.0, 0.5, 40.0), (12.0, 0.4, 50.0), (30.0, 0.1, 40.0), (36.0, 0.6, 49.0)])
    monkeypatch.setattr(brokers, "measure", lambda _: brokers.Connected(*next(figures)))
    assert scaling.of_connections((1, 1_000), 2).splitlines()[-2:] == [
        "| 1 | 20.0 | 1.00 | 0.30 | 40 |",
        "| 1,000 | 24.0 | 1.20 | 0.50 | 50 |",
    ]


@pytest.mark.parametrize(("load", "is_said"), [(0.1, False), (5.0, True)])
def test_the_page_says_whether_the_machine_was_busy(load: float, is_said: bool) -> None:
    """The reader knows whether to trust the figures or the shape alone."""
    facts = {
        "measured_at": "2026-01-01",
        "processors": 4,
        "processor": "P",
        "load_before": load,
        "python": "CPython",
    }
    assert ("a machine with other work" in importlib.import_module("scaling").where(facts)) == is_said
