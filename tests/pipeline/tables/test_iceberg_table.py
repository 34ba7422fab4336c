"""Iceberg tables: what ``pyiceberg`` and the snapshots say of a batch."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from support.pipeline.tables_kit import SCHEMA, new_table, offsets_of, rows, written

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.tables import open_table
from splashdam.pipeline.tables.iceberg_table import COMMITTED, IcebergTable, catalog_properties
from splashdam.pipeline.tables.locations import Location
from splashdam.pipeline.tables.table import TableConflictError

pytest.importorskip("pyiceberg", reason="needs splashdam[iceberg]")


def theirs(folder: Path) -> Any:
    """The table as anybody with its catalog opens it."""
    from pyiceberg.catalog import load_catalog

    uri = f"sqlite:///{folder}/table/catalog.sqlite"
    return load_catalog("splashdam", type="sql", uri=uri).load_table("splashdam.table")


def test_others_read_it(tmp_path: Path) -> None:
    """By its catalog, with partitions that are pruned."""
    table = new_table("iceberg", tmp_path, partition_by=("date", "topic"))
    table.commit("q", 0, written(table, rows(range(10)), rows(range(10, 20), topic="u", day=2)))
    other = theirs(tmp_path)
    assert other.scan(row_filter="topic = 'u'").to_arrow().num_rows == 10
    assert len(list(other.scan(row_filter="topic = 'u'").plan_files())) == 1
    other.catalog.close()
    table.close()


def test_the_snapshot_names_the_batch(tmp_path: Path) -> None:
    """Query and batch stand in its summary, and the newest batch in a property of the table."""
    table = new_table("iceberg", tmp_path)
    table.commit("query", 7, written(table, rows([0])))
    other = theirs(tmp_path)
    summary = other.current_snapshot().summary
    assert (summary["splashdam.query"], summary["splashdam.batch"]) == ("query", "7")
    assert other.properties[COMMITTED + "query"] == "7"
    other.catalog.close()
    table.close()


def test_the_batch_is_known_after_its_snapshot_expired(tmp_path: Path) -> None:
    """The property stays; and where somebody removes that one, the summaries are asked."""
    table = new_table("iceberg", tmp_path)
    for batch in range(2):
        table.commit("q", batch, written(table, rows([batch])))
    other = theirs(tmp_path)
    with other.transaction() as transaction:
        transaction.remove_properties(COMMITTED + "q")
    assert [table.is_committed("q", batch) for batch in (0, 1, 2)] == [True, True, False]
    with other.transaction() as transaction:
        transaction.set_properties({COMMITTED + "q": "1"})
    other.append(other.scan().to_arrow())
    other.maintenance.expire_snapshots().older_than(datetime.now()).commit()
    assert "splashdam.batch" not in str([each.summary for each in other.snapshots()])
    assert table.is_committed("q", 1)
    other.catalog.close()
    table.close()


def test_a_commit_of_others_is_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table changed in between: the batch is looked for again, then committed on top."""
    table = new_table("iceberg", tmp_path)
    assert isinstance(table, IcebergTable)
    table.commit("q", 0, written(table, rows([0])))
    other = theirs(tmp_path)
    once, changes = table._commit_once, iter([True])

    def interfered(*arguments: Any) -> None:
        if next(changes, False):
            other.append(other.scan().to_arrow())
        once(*arguments)

    monkeypatch.setattr(table, "_commit_once", interfered)
    assert table.commit("q", 1, written(table, rows([1])))
    assert offsets_of(table) == [0, 0, 1]
    other.refresh()
    assert "commit.retry.num-retries" not in other.properties
    other.catalog.close()
    table.close()


def test_a_table_that_never_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some attempts the batch fails; nothing of it is in the table."""
    table = new_table("iceberg", tmp_path)
    assert isinstance(table, IcebergTable)
    from pyiceberg.exceptions import CommitFailedException

    def refused(*_: Any) -> None:
        raise CommitFailedException("changed")

    monkeypatch.setattr(table, "_commit_once", refused)
    with pytest.raises(TableConflictError, match="batch 0 could not be committed"):
        table.commit("q", 0, written(table, rows([0])))
    table.close()


def test_the_catalog_is_an_option(tmp_path: Path) -> None:
    """Options that begin with ``catalog.`` go to pyiceberg; a table in object storage needs them."""
    options = {
        "catalog.type": "sql",
        "catalog.uri": f"sqlite:///{tmp_path}/c.sqlite",
        "identifier": "lake.flights",
    }
    table = open_table("iceberg", tmp_path / "anywhere", schema=SCHEMA, options=options)
    assert table.commit("q", 0, written(table, rows([0])))
    table.close()
    again = open_table("iceberg", tmp_path / "anywhere", schema=SCHEMA, options=options)
    assert offsets_of(again) == [0]
    again.close()
    with pytest.raises(KafkaConfigurationError, match=r"catalog.type and catalog.uri"):
        catalog_properties(Location.of("s3://bucket/table", {"s3.region": "eu"}))
    with pytest.raises(KafkaConfigurationError, match=r"NAMESPACE\.TABLE"):
        open_table("iceberg", tmp_path / "t", schema=SCHEMA, options={"identifier": "flights"})


def test_a_catalog_that_fails_stayed_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends the opening, or the making, of a table closes the connections of its catalog."""
    from pyiceberg.catalog.sql import SqlCatalog

    new_table("iceberg", tmp_path).close()
    closed: list[SqlCatalog] = []
    close = SqlCatalog.close

    def counted(catalog: SqlCatalog) -> None:
        closed.append(catalog)
        close(catalog)

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError("no")

    monkeypatch.setattr(SqlCatalog, "close", counted)
    monkeypatch.setattr(SqlCatalog, "load_table", refused)
    monkeypatch.setattr(SqlCatalog, "create_namespace_if_not_exists", refused)
    for folder in ("table", "new"):
        with pytest.raises(PermissionError, match="no"):
            open_table("iceberg", tmp_path / folder, schema=SCHEMA)
    assert len(closed) == 2
