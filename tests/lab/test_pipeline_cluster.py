"""The books of ``make pipeline-cluster``: what they count; and what the archive is made of."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

import pyarrow as pa

from lab.pipeline_cluster import books, job_archive
from splashdam.pipeline.tables import open_table
from splashdam.pipeline.tables.writing import write_files

RECORDS = 7_000
HOURS = pa.schema(
    [("window_start", pa.timestamp("us", tz="UTC")), ("carrier", pa.string()), ("count", pa.int64())]
)
LATE = pa.schema([("value", pa.binary())])


def table(place: Path, schema: pa.Schema, rows: list[dict[str, object]]) -> Path:
    """A table with these rows."""
    made = open_table("parquet", place, schema=schema)
    made.commit("q", 0, list(write_files(made.writing(), iter([pa.RecordBatch.from_pylist(rows, schema)]))))
    made.close()
    return place


def rows_of(counts: Counter[tuple[int, str]]) -> list[dict[str, object]]:
    return [
        {"window_start": datetime.fromtimestamp(start / 1000, UTC), "carrier": carrier, "count": count}
        for (start, carrier), count in counts.items()
    ]


def test_windows_are_counted_with_their_late_rows(tmp_path: Path) -> None:
    """A late row belongs to the window that it missed; a second row of a window is one too many."""
    counts = books.expected_windows(RECORDS)
    assert sum(counts.values()) == RECORDS
    assert len({start for start, _ in counts}) == 3
    late = table(tmp_path / "late", LATE, [{"value": books.value(11)}])
    key = books.window_of(11)
    counts[key] -= 1
    assert books.windowed(RECORDS, table(tmp_path / "a", HOURS, rows_of(counts)), late).is_good
    counts[key] -= 2
    found = books.windowed(RECORDS, table(tmp_path / "b", HOURS, rows_of(counts)), late)
    assert (found.gaps, found.duplicates, found.wrong) == (2, 0, 0)
    counts[key] += 5
    twice = [*rows_of(counts), *rows_of(Counter({(0, "XX"): 1}))]
    found = books.windowed(RECORDS, table(tmp_path / "c", HOURS, twice), late)
    assert (found.gaps, found.duplicates, found.wrong) == (0, 3, 1)
    assert not found.is_good


def test_archive_is_kept_until_a_source_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes minutes to build, and must not be an older product's."""
    monkeypatch.setattr(job_archive, "_HOME", tmp_path)
    ran: list[tuple[str, ...]] = []

    def run(*command: str) -> None:
        ran.append(command)
        if "wheel" in command:
            (Path(command[command.index("-w") + 1]) / "splashdam-0-py3-none-any.whl").touch()

    monkeypatch.setattr(job_archive, "_run", run)
    archive = tmp_path / "job.tar.gz"
    archive.touch()
    assert job_archive.packed(lambda _: None) == archive
    assert ran == []
    os.utime(archive, (0, 0))
    job_archive.packed(lambda _: None)
    assert [name for name in ("venv", "wheel", "install") if any(name in words for words in ran)] == [
        "venv",
        "wheel",
        "install",
    ]
    assert ran[-1][0].endswith("venv-pack")
