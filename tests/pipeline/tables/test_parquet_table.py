"""A folder of Parquet files: what a crash leaves, and what readers see that know nothing of the log."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from support.pipeline.tables_kit import SCHEMA, new_table, offsets_of, rows, written

from splashdam.pipeline.tables import existing_table, open_table
from splashdam.pipeline.tables.locations import Location


def seen_by_pyarrow(folder: Path) -> list[int]:
    """Offsets that a plain reader of the folder finds."""
    found = pq.read_table(folder / "table", columns=["offset"]).column("offset").to_pylist()
    return sorted(found)


def test_plain_readers_see_committed_files_alone(tmp_path: Path) -> None:
    """Neither the folder nor a pattern of ``*.parquet`` shows uncommitted files."""
    table = new_table("parquet", tmp_path, partition_by=("date", "topic"))
    table.commit("q", 0, written(table, rows(range(4)), rows(range(4, 6), day=1)))
    written(table, rows(range(3)))
    assert seen_by_pyarrow(tmp_path) == list(range(6))
    matched = list((tmp_path / "table").rglob("*.parquet"))
    assert sorted(path.parent.parent.name for path in matched) == ["date=1970-01-01", "date=1970-01-02"]
    found = ds.dataset(tmp_path / "table", format="parquet", partitioning="hive").to_table()
    assert set(found.column("topic").to_pylist()) == {"t"}


def test_a_crash_between_the_log_and_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log decides: the next process that opens the table moves the files that are still aside."""
    table = new_table("parquet", tmp_path)
    table.commit("q", 0, written(table, rows([0])))
    moved = Location.move

    def moves_one(self: Location, path: str, new_path: str) -> None:
        moved(self, path, new_path)
        if path.startswith("_staging"):
            raise KeyboardInterrupt

    files = [*written(table, rows([1])), *written(table, rows([2]))]
    monkeypatch.setattr(Location, "move", moves_one)
    with pytest.raises(KeyboardInterrupt):
        table.commit("q", 1, files)
    monkeypatch.undo()
    assert len(seen_by_pyarrow(tmp_path)) == 2
    assert existing_table("parquet", table.location.uri).is_committed("q", 1)
    assert seen_by_pyarrow(tmp_path) == [0, 1, 2]


def test_a_commit_that_failed_is_settled_by_the_same_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk at a rename: the batch is repeated, and found to be decided."""
    table = new_table("parquet", tmp_path)

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    files = written(table, rows([0]))
    monkeypatch.setattr(Location, "move", lambda *_: full())
    with pytest.raises(OSError, match="no space"):
        table._settle("q") or table.commit("q", 0, files)
    monkeypatch.undo()
    assert not table.orphans(0)
    assert table.is_committed("q", 0)
    assert seen_by_pyarrow(tmp_path) == [0]


def test_in_memory() -> None:
    """Any filesystem that fsspec knows will do."""
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").store.clear()
    table = open_table("parquet", "memory://lake/flights", schema=SCHEMA, partition_by=["topic"])
    assert table.commit("q", 0, written(table, rows(range(5)), rows(range(5, 8), topic="u")))
    assert not table.commit("q", 0, written(table, rows(range(5))))
    again = existing_table("parquet", "memory://lake/flights")
    assert offsets_of(again) == list(range(8))
    assert len(again.remove_orphans(1 << 60)) == 1
    handler = fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem("memory")))
    found = ds.dataset("/lake/flights", filesystem=handler, format="parquet", partitioning="hive")
    assert found.count_rows() == 8
