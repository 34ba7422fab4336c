"""One row per key in a Delta table: newer rows win, some delete, and a batch counts once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake", reason="needs splashdam[delta]")
pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from splashdam.pipeline.jobs.latest import UpsertTable
from splashdam.pipeline.tables.opening import existing_table

SCHEMA = pa.schema([("key", pa.binary()), ("offset", pa.int64()), ("value", pa.binary())])


def rows(*of: tuple[bytes, int, bytes | None]) -> pa.Table:
    """Keys, offsets and values."""
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in of], SCHEMA)


def content(place: Path) -> dict[Any, Any]:
    """Value and offset by key."""
    table = existing_table("delta", place)
    found = [row for batch in table.iter_rows() for row in batch.to_pylist()]
    by_key = {row["key"]: (row["offset"], row["value"]) for row in found}
    assert len(by_key) == len(found)
    return by_key


def test_batches(tmp_path: Path) -> None:
    """Insert, replace, delete; an older row changes nothing; a batch that is repeated does not, either."""
    place = tmp_path / "latest"
    table = UpsertTable(str(place), ("key",), "offset", "source.value IS NULL")
    assert table.merge(rows((b"a", 1, b"1"), (b"b", 2, b"2"), (b"never", 3, None)), "q", 0)
    assert content(place) == {b"a": (1, b"1"), b"b": (2, b"2")}
    assert table.merge(rows((b"a", 5, b"5"), (b"b", 6, None), (b"\x00", 7, b"")), "q", 1)
    after = {b"a": (5, b"5"), b"\x00": (7, b"")}
    assert content(place) == after
    assert not table.merge(rows((b"a", 8, None)), "q", 1)
    assert table.merge(rows((b"a", 4, b"old"), (b"a2", 9, None)), "q", 2)
    assert content(place) == after
    assert not table.merge(rows(), "q", 3)
    assert table.merge(rows((b"b", 10, b"again")), "q", 4)
    assert content(place) == {**after, b"b": (10, b"again")}


def test_keys_of_several_columns(tmp_path: Path) -> None:
    """All of them tell rows apart."""
    columns = ("topic", "partition", "key")
    table = UpsertTable(str(tmp_path), columns, "offset", "source.value IS NULL")
    schema = pa.schema([("topic", pa.string()), ("partition", pa.int32()), *SCHEMA])

    def named(*of: tuple[str, int, bytes, int, bytes | None]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in of], schema)

    table.merge(named(("t", 0, b"a", 1, b"1"), ("t", 1, b"a", 1, b"2"), ("u", 0, b"a", 1, b"3")), "q", 0)
    table.merge(named(("t", 0, b"a", 2, None), ("u", 0, b"a", 2, b"4")), "q", 1)
    found = existing_table("delta", tmp_path)
    kept = {tuple(row.values()) for batch in found.iter_rows() for row in batch.to_pylist()}
    assert kept == {("t", 1, b"a", 1, b"2"), ("u", 0, b"a", 2, b"4")}
