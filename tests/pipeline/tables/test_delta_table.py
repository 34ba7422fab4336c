"""Delta tables: what ``deltalake`` and its log say of a batch."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from support.pipeline.tables_kit import new_table, offsets_of, rows, written

deltalake = pytest.importorskip("deltalake", reason="needs splashdam[delta]")


def test_others_read_it(tmp_path: Path) -> None:
    """Partition values come from the log, and statistics let files be passed over."""
    table = new_table("delta", tmp_path, partition_by=("date", "topic"))
    table.commit("q", 0, written(table, rows(range(10)), rows(range(10, 20), topic="u", day=2)))
    theirs = deltalake.DeltaTable(table.location.uri)
    found = theirs.to_pyarrow_dataset().to_table(columns=["topic", "offset", "date"])
    assert sorted(found.column("offset").to_pylist()) == list(range(20))
    assert {row["topic"]: str(row["date"]) for row in found.to_pylist()} == {
        "t": "1970-01-01",
        "u": "1970-01-03",
    }
    actions = pa.table(theirs.get_add_actions(flatten=True)).sort_by("min.offset").to_pylist()
    assert [(row["min.offset"], row["max.offset"], row["num_records"]) for row in actions] == [
        (0, 9, 10),
        (10, 19, 10),
    ]
    assert str(actions[0]["max.timestamp"]) == "1970-01-01 00:00:00.009000+00:00"


def test_the_log_names_the_batch(tmp_path: Path) -> None:
    """As an application transaction: the query's id, and the batch as its version."""
    table = new_table("delta", tmp_path)
    table.commit("query", 7, written(table, rows([0])))
    lines = (tmp_path / "table/_delta_log/00000000000000000001.json").read_text().splitlines()
    (transaction,) = [entry["txn"] for entry in map(json.loads, lines) if "txn" in entry]
    assert (transaction["appId"], transaction["version"]) == ("query", 7)


def test_the_batch_is_known_after_a_checkpoint_of_the_log(tmp_path: Path) -> None:
    """Delta may compact its log and forget older entries: never the newest version of a query."""
    table = new_table("delta", tmp_path)
    table.commit("query", 7, written(table, rows([0])))
    theirs = deltalake.DeltaTable(table.location.uri)
    theirs.create_checkpoint()
    for entry in (tmp_path / "table/_delta_log").glob("*.json"):
        entry.unlink()
    table = new_table("delta", tmp_path)
    assert table.is_committed("query", 7)
    assert not table.commit("query", 7, written(table, rows([0])))


def test_files_of_older_versions_are_no_orphans(tmp_path: Path) -> None:
    """Others may compact the table; what they replaced is needed to read it as it was."""
    table = new_table("delta", tmp_path)
    for batch in range(3):
        table.commit("q", batch, written(table, rows([batch])))
    deltalake.DeltaTable(table.location.uri).optimize.compact()
    assert len(table.parts()) == 1
    assert table.orphans(1 << 60) == []
    assert offsets_of(table) == [0, 1, 2]
    assert table.commit("q", 3, written(table, rows([3])))
