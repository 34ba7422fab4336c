"""Where the time of a record goes: the arithmetic, the picture, and a small run."""

from __future__ import annotations

import importlib
import json
import resource
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.running.house_tree import ROOT

needs_thread_times = pytest.mark.skipif(
    not hasattr(resource, "RUSAGE_THREAD"), reason="this system does not tell threads apart"
)


def test_nanoseconds_per_record() -> None:
    """Seconds before and after, in nanoseconds per record; a clock that seems to go back counts as still."""
    stages = importlib.import_module("stages")
    before, after = stages.Split(1.0, 2.0, 3.0, 4.0), stages.Split(1.5, 2.0, 3.001, 3.9)
    assert after.since(before, 1_000) == stages.Split(500_000, 0, pytest.approx(1_000), 0)


def test_the_picture_of_the_stages() -> None:
    """Each way with its sum, each stage with its share, the machine below."""
    stages, recorded = map(importlib.import_module, ("stages", "recorded"))
    ways = {"splashdam send()": {"encoding": 40.4, "sender": 60.0}}
    svg = stages.picture({"machine": recorded.MACHINE, "size": 100, "rounds": 3, "ways": ways})
    texts = ["".join(each.itertext()) for each in ElementTree.fromstring(svg).iter()]
    for expected in ("splashdam send(): 100 ns", "encoding", "40 ns", "sender", "60 ns"):
        assert expected in texts
    assert "medians of 3 rounds" in " ".join(texts)


@pytest.mark.slow
@needs_thread_times
def test_a_small_run_of_the_stages(tmp_path: Path) -> None:
    """Every way has stages that are no negative times; table, JSON and picture are written."""
    result, picture = tmp_path / "stages.json", tmp_path / "stages.svg"
    options = ["--rounds", "1", "--records", "2000", "--json", str(result), "--svg", str(picture)]
    done = subprocess.run(
        [sys.executable, "benchmarks/stages.py", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    ways = json.loads(result.read_text())["ways"]
    assert {"splashdam send()", "confluent-kafka produce()"} <= set(ways)
    assert all(share >= 0 for parts in ways.values() for share in parts.values())
    assert all(way in done.stdout for way in ways)
    ElementTree.fromstring(picture.read_text())
