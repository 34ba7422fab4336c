"""An ingest that is killed: three times here, twenty times by ``make pipeline-chaos``."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.pipeline.tables_kit import new_table, rows, written
from support.running.house_tree import ROOT

from lab.pipeline_chaos import __main__ as chaos
from lab.pipeline_chaos import driver_process
from lab.pipeline_chaos.table_check import TableCounts, compare
from splashdam.cli.exiting import EndedBySignal, signals_interrupt
from splashdam.pipeline.session import JavaMissingError, need_java

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

_TIMEOUT_SECONDS = 900
"""Two minutes on a machine with nothing else to do; a busy one may take long, and be right."""


def test_each_difference_is_counted(tmp_path: Path) -> None:
    """The tool counts missing, repeated and changed records."""
    table = new_table("parquet", tmp_path)
    table.commit("q", 0, written(table, rows(range(5)), rows([1, 2])))
    place = Path(table.location.uri)
    log = {(0, offset): b"value %d" % offset for offset in range(5)}
    assert compare("parquet", place, log) == TableCounts(records=5, duplicates=2)
    del log[0, 1]
    assert compare("parquet", place, {**log, (0, 7): b"", (0, 0): b"other"}) == TableCounts(5, 1, 2, 3)


def test_an_interrupt_waits_until_the_driver_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that came while the process was being started left it behind."""
    popen = subprocess.Popen

    def interrupted(_: list[str], **options: Any) -> subprocess.Popen[str]:
        process = popen([sys.executable, "-c", "import sys; sys.stdin.read()"], **options)
        signal.raise_signal(signal.SIGTERM)
        return process

    monkeypatch.setattr(driver_process.subprocess, "Popen", interrupted)
    driver = driver_process.Driver("no servers", tmp_path)
    with signals_interrupt(), pytest.raises(EndedBySignal):
        driver.start("parquet")
    assert driver.is_running
    driver.destroy()
    assert not driver.is_running


def test_a_sender_that_failed_was_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread printed a traceback, and the few records that it had sent were in each table."""

    def refuse(**_: Any) -> Any:
        raise OSError("no broker answers")

    monkeypatch.setattr(chaos, "KafkaProducer", refuse)
    sender = chaos.Sender("localhost:9", 1)
    assert sender.violations() == []
    sender.start()
    sender.stop()
    assert sender.violations() == ["the sender ended with OSError: no broker answers"]


def can_run() -> None:
    """Skips the test where the tool cannot."""
    for module in ("deltalake", "pyiceberg"):
        pytest.importorskip(module, reason="needs splashdam[delta,iceberg]")
    try:
        need_java()
    except JavaMissingError as missing:
        pytest.skip(str(missing))


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The tool, with its files in a folder; it does not outlive the block, nor its driver the tool."""
    tool = subprocess.Popen(
        [sys.executable, "-m", "lab.pipeline_chaos", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with tool:
        try:
            yield tool
        finally:
            tool.kill()


def drivers_of(folder: Path) -> list[int]:
    """Processes that name a folder in their command lines: drivers, while they live."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


@pytest.mark.spark
@pytest.mark.timeout(_TIMEOUT_SECONDS)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupt_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    """SIGTERM left a driver, its JVM and the folder; both signals end all, with the status of a shell."""
    can_run()
    with started(tmp_path) as tool:
        while not drivers_of(tmp_path):
            assert tool.poll() is None
        tool.send_signal(number)
        stdout, stderr = tool.communicate(timeout=_TIMEOUT_SECONDS)
    assert (tool.returncode, stdout) == (128 + number, "")
    assert stderr.endswith("interrupted\n")
    assert drivers_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(_TIMEOUT_SECONDS)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")
def test_three_kills(tmp_path: Path) -> None:
    """Trap 21: a worker, the driver, the driver between two commits: each record is in each table once.

    The driver is ``local[2,4]``: with one attempt per task the first kill would end it.
    """
    can_run()
    with started(tmp_path, "--kills", "3", "--seed", "1", "--pause", "0.5", "--rate", "200") as tool:
        stdout, stderr = tool.communicate(timeout=_TIMEOUT_SECONDS)
    told = stdout + stderr
    assert re.search(r"^verified: \d+ records, 0 gaps, 0 duplicates after 3 kills$", stdout, re.M), told
    assert tool.returncode == 0
    for kind in ("worker", "the driver,", "the driver between"):
        assert re.search(rf"kill \d: {kind}", told), told
