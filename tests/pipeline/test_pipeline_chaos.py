"""An ingest that is killed: three times here, twenty times by ``make pipeline-chaos``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tables_kit import new_table, rows, written

from splashdam.pipeline.java import JavaMissingError, need_java

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

TOOLS = Path(__file__).parents[2] / "tools"


def test_what_is_wrong_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool counts what a table lacks, what it has twice, and what is not as it was."""
    monkeypatch.syspath_prepend(TOOLS)
    from pipeline_chaos.checking import Verdict, compare

    table = new_table("parquet", tmp_path)
    table.commit("q", 0, written(table, rows(range(5)), rows([1, 2])))
    place = Path(table.location.uri)
    log = {(0, offset): b"value %d" % offset for offset in range(5)}
    assert compare("parquet", place, log) == Verdict(records=5, duplicates=2)
    del log[0, 1]
    assert compare("parquet", place, {**log, (0, 7): b"", (0, 0): b"other"}) == Verdict(5, 1, 2, 3)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(240)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")
def test_three_kills() -> None:
    """Trap 21: a worker, the driver, the driver between two commits: each record is in each table once.

    The driver is ``local[2,4]``: with one attempt per task the first kill would end it.
    """
    for module in ("deltalake", "pyiceberg"):
        pytest.importorskip(module, reason="needs splashdam[delta,iceberg]")
    try:
        need_java()
    except JavaMissingError as missing:
        pytest.skip(str(missing))
    done = subprocess.run(
        [sys.executable, "-m", "pipeline_chaos", "--kills", "3", "--seed", "1", "--pause", "0.5"],
        env={**os.environ, "PYTHONPATH": str(TOOLS)},
        capture_output=True,
        text=True,
        check=False,
    )
    told = done.stdout + done.stderr
    assert re.search(r"^verified: \d+ records, 0 gaps, 0 duplicates after 3 kills$", done.stdout, re.M), told
    assert done.returncode == 0
    for kind in ("worker", "the driver,", "the driver between"):
        assert re.search(rf"kill \d: {kind}", told), told
