"""What all tables promise, whatever their format: a batch exactly once, columns, partitions, orphans."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pipeline.tables_kit import SCHEMA, every_format, new_table, offsets_of, rows, written

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.tables import existing_table, open_table
from splashdam.pipeline.tables.table import Table, TableMissingError

LONG_AGO, FAR_AHEAD = 0, 1 << 60


def again(table: Table, table_format: str) -> Table:
    """The same table, as another process would see it."""
    table.close()
    return existing_table(table_format, table.location.uri)


@every_format
def test_a_batch_comes_in_once(table_format: str, tmp_path: Path) -> None:
    """Trap 19: a batch that is repeated after its commit changes nothing, in this process or the next."""
    table = new_table(table_format, tmp_path)
    assert table.commit("q", 0, written(table, rows(range(10))))
    assert not table.commit("q", 0, written(table, rows(range(10))))
    table = again(table, table_format)
    assert table.is_committed("q", 0)
    assert not table.commit("q", 0, written(table, rows(range(10))))
    assert offsets_of(table) == list(range(10))
    table.close()


@every_format
def test_queries_do_not_share_their_batches(table_format: str, tmp_path: Path) -> None:
    """Batch 0 of another query is another batch; earlier ones of the same query are known, too."""
    table = new_table(table_format, tmp_path)
    assert table.commit("one/§", 3, written(table, rows(range(3))))
    assert [table.is_committed("one/§", batch) for batch in (0, 3, 4)] == [True, True, False]
    assert not table.is_committed("two", 0)
    assert table.commit("two", 0, written(table, rows(range(3, 5))))
    assert offsets_of(again(table, table_format)) == list(range(5))


@every_format
def test_rows_are_read_as_written(table_format: str, tmp_path: Path) -> None:
    """All columns, nulls and headers included, with and without partitions."""
    batches = [rows(range(5)), rows(range(5, 9), topic="other.topic", partition=1, day=400)]
    for by in ((), ("date", "topic")):
        table = new_table(table_format, tmp_path / str(len(by)), partition_by=by)
        assert table.partition_by == by
        table.commit("q", 0, written(table, *batches))
        found = pa.Table.from_batches(list(table.iter_rows(SCHEMA.names))).sort_by("offset")
        assert found.to_pylist() == pa.Table.from_batches(batches).to_pylist()
        if by:
            days = pa.Table.from_batches(list(table.iter_rows(["date"]))).column("date").unique().to_pylist()
            assert sorted(map(str, days)) == ["1970-01-01", "1971-02-05"]
        table.close()


@every_format
def test_values_that_paths_cannot_hold(table_format: str, tmp_path: Path) -> None:
    """A column with slashes, percent signs and nulls in it can choose the folder."""
    schema = pa.schema([("name", pa.string()), ("offset", pa.int64())])
    table = new_table(table_format, tmp_path, schema=schema, partition_by=("name",))
    names = ["a/b", "100%", "é =", None]
    batch = pa.RecordBatch.from_pydict({"name": names, "offset": [0, 1, 2, 3]}, schema=schema)
    table.commit("q", 0, written(table, batch))
    found = pa.Table.from_batches(list(again(table, table_format).iter_rows())).sort_by("offset")
    assert found.column("name").to_pylist() == names


@every_format
def test_a_column_is_added(table_format: str, tmp_path: Path) -> None:
    """Rows that were there have nulls in it, and rows to come may lack others."""
    table = new_table(table_format, tmp_path)
    table.commit("q", 0, written(table, rows([0])))
    table.close()
    grown = pa.schema([("offset", pa.int64()), ("extra", pa.int32())])
    table = open_table(table_format, table.location.uri, schema=grown)
    assert table.schema.names == [*SCHEMA.names, "extra"]
    batch = pa.RecordBatch.from_pydict({"offset": [1], "extra": [7]}, schema=grown)
    table.commit("q", 1, written(table, batch))
    found = pa.Table.from_batches(list(again(table, table_format).iter_rows(["offset", "extra", "value"])))
    assert sorted(found.to_pylist(), key=lambda row: row["offset"]) == [
        {"offset": 0, "extra": None, "value": b"value 0"},
        {"offset": 1, "extra": 7, "value": None},
    ]


@every_format
def test_rows_that_do_not_fit_are_refused(table_format: str, tmp_path: Path) -> None:
    """Another type of a column, another partitioning, an unknown column of a batch or of the partitioning."""
    table = new_table(table_format, tmp_path, partition_by=("topic",))
    place = table.location.uri
    with pytest.raises(KafkaConfigurationError, match="column offset is int64, and the rows have string"):
        open_table(
            table_format,
            place,
            schema=pa.schema([("offset", pa.string()), ("topic", pa.string())]),
            partition_by=["topic"],
        )
    with pytest.raises(KafkaConfigurationError, match=r"is partitioned by \(topic\), not by \(date\)"):
        open_table(table_format, place, schema=SCHEMA, partition_by=["date"])
    with pytest.raises(KafkaConfigurationError, match="the table has no column extra"):
        written(table, pa.RecordBatch.from_pydict({"extra": [1]}))
    with pytest.raises(KafkaConfigurationError, match="cannot partition by nothing"):
        open_table(table_format, tmp_path / "other", schema=SCHEMA, partition_by=["nothing"])
    with pytest.raises(TableMissingError, match="no "):
        existing_table(table_format, tmp_path / "missing")
    table.close()


@every_format
def test_orphans(table_format: str, tmp_path: Path) -> None:
    """Trap 20: files of attempts that lost are in no table; they are listed, and removed when they are
    old."""
    table = new_table(table_format, tmp_path, partition_by=("date", "topic"))
    table.commit("q", 0, written(table, rows(range(10))))
    lost = written(table, rows(range(5)), rows(range(5), day=1))
    assert offsets_of(table) == list(range(10))
    assert table.orphans(LONG_AGO) == []
    found = table.orphans(FAR_AHEAD)
    assert sorted(Path(file.path).name.removesuffix(".part") for file in found) == sorted(
        file.name for file in lost
    )
    assert table.remove_orphans(FAR_AHEAD) == found
    assert table.orphans(FAR_AHEAD) == []
    assert offsets_of(again(table, table_format)) == list(range(10))


@every_format
def test_two_writers_of_the_same_batch(table_format: str, tmp_path: Path) -> None:
    """A driver that was believed dead and its successor: one of the two commits is in the table."""
    one = new_table(table_format, tmp_path)
    one.commit("q", 0, written(one, rows([0])))
    two = existing_table(table_format, one.location.uri)
    assert not one.is_committed("q", 1)
    assert not two.is_committed("q", 1)
    assert two.commit("q", 1, written(two, rows([1])))
    assert not one.commit("q", 1, written(one, rows([1])))
    assert offsets_of(one) == [0, 1]
    one.close()
    two.close()


@every_format
def test_a_batch_without_files(table_format: str, tmp_path: Path) -> None:
    """It changes nothing, and is not remembered: repeating it has no effect either."""
    table = new_table(table_format, tmp_path)
    assert not table.commit("q", 0, [])
    assert not table.is_committed("q", 0)
    assert table.commit("q", 1, written(table, rows([0])))
    table.close()


@settings(max_examples=20, deadline=None)
@given(steps=st.lists(st.tuples(st.integers(0, 1), st.booleans(), st.booleans()), max_size=8))
def test_any_order_of_crashes(
    steps: list[tuple[int, bool, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Batches are repeated, written in vain or seen by a new process: each is there once."""
    table: Table = new_table("parquet", tmp_path_factory.mktemp("any"))
    numbers, model = [0, 0], []
    for query, is_repeated, is_reopened in steps:
        batch = max(0, numbers[query] - 1) if is_repeated else numbers[query]
        offset = 1000 * query + batch
        if table.commit(f"q{query}", batch, written(table, rows([offset]))):
            model.append(offset)
        numbers[query] = max(numbers[query], batch + 1)
        if is_reopened:
            table = again(table, "parquet")
    assert offsets_of(table) == sorted(set(model)) == sorted(model)
    assert len(model) == sum(numbers)
